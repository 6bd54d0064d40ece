"""A planted defect finds its place by structure (`patterns.py`), whatever the private names of the product are."""

import ast
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ..sampling import sample
from .mutants import MUTANTS
from .patterns import Edit, Module, module_of, read_module
from .planted import Outdated
from .renamed import Names, find_missed
from .seams import Seam

SOURCE = """
LIMIT = 3

class Counter:
    def count(self, items, most):
        for item in items:
            if item.ok and self._seen < most:
                self._seen += 1
                self._say(item, *items, word="so", end=LIMIT)
        return [each for each in items if each.ok], [one for one in items if one.bad]
"""


def changed(old: str, new: str, where: str = "a.py") -> str:
    """The method's lines after that edit, without their indentation."""
    module = read_module("a.py", SOURCE)
    Edit(where, old, new).apply(module)
    return ast.unparse(ast.parse(ast.unparse(module.tree)))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("x._a < y", "x._a <= y", "if item.ok and self._seen <= most:"),
        ("x.ok and ...", "not x.ok and ...", "if not item.ok and self._seen < most:"),
        ("x._a += 1", "pass", "pass"),
        ("x._a(..., end=LIMIT)", "x._a(..., end=0)", "self._say(item, *items, end=0, word='so')"),
        ("x._a(..., finish=LIMIT)", "x._a(..., finish=0)", "self._say(item, *items, end=0, word='so')"),
        ("for x in z: ...", "for x in sorted(z): ...", "for item in sorted(items):"),
        ("[x for x in z if x.ok]", "[x for x in z if not x.ok]", "[each for each in items if not each.ok]"),
        ("[x for x in z if x.bad]", "[new for new in z]", "[new for new in items]"),
    ],
)
def test_a_piece_is_found_under_other_names_and_keeps_its_own(old: str, new: str, line: str) -> None:
    assert line in changed(old, new)
    assert line in changed(old, new, "a.py::Counter.count")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x._a < x", "0"),  # two names of the source for one
        ("x.fine and ...", "0"),  # another public name
        ("LIMITS", "0"),
        ("x.ok", "0"),  # twice
        ("x._a(..., end=4)", "0"),
        ("x._a < y", "x._a < z"),  # what is z?
        ("x._a < y", "x._b < y"),
    ],
)
def test_what_is_not_there_once_or_names_what_is_not_known_is_outdated(old: str, new: str) -> None:
    with pytest.raises(Outdated):
        changed(old, new)


def test_a_class_or_function_that_has_gone_is_outdated() -> None:
    with pytest.raises(Outdated, match=r"a\.py::Counter\.add is there 0 times"):
        changed("x._a < y", "0", "a.py::Counter.add")
    with pytest.raises(Outdated, match=r"rendezvous\.round\.decides is no public function"):
        Seam("rendezvous.round.decides", print).find_target()


def edits() -> list[tuple[str, list[Edit]]]:
    """Those that defects make, by file."""
    parts = (each for mutant in MUTANTS for each in mutant.parts)
    found = sorted((each for each in parts if isinstance(each, Edit)), key=lambda edit: edit.where)
    return [(file, list(some)) for file, some in itertools.groupby(found, lambda edit: edit.file)]


def as_it_is(module: Module) -> Module:
    """The product."""
    return module


def with_other_names(module: Module) -> Module:
    """Every local variable and every private name is another."""
    source = ast.unparse(module.tree)
    return read_module(module.file, Names.of([source]).rename(source))


def in_another_order(module: Module) -> Module:
    """The functions of each class, and of the module, are in the opposite order."""
    tree = ast.parse(ast.unparse(module.tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            node.body.sort(key=lambda each: -each.lineno if isinstance(each, ast.FunctionDef) else 0)
    return read_module(module.file, ast.unparse(tree))


@pytest.mark.parametrize(("file", "some"), edits(), ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("form", [as_it_is, with_other_names, in_another_order])
def test_every_defect_can_be_planted(file: str, some: list[Edit], form: Callable[[Module], Module]) -> None:
    module = form(module_of(file))
    for edit in some:
        _, undo = edit.apply(module)
        compile(module.tree, file, "exec")
        undo()


def test_every_seam_is_public() -> None:
    for each in (each for mutant in MUTANTS for each in mutant.parts):
        if isinstance(each, Seam):
            each.find_target()
            assert not any(word.startswith("_") and word != "__init__" for word in each.name.split("."))


def test_some_defects_are_seen_in_a_renamed_product(tmp_path: Path) -> None:
    known = {mutant.name: mutant for mutant in MUTANTS}
    assert not find_missed([known[name] for name in sample(known, 3, "renamed")], tmp_path / "product")
