"""python -m tests.simulation.renamed: shows that no planted defect depends on a private name of the product.

Writes a copy of the product in which every local variable and every private name (`_x`, `self._x`) is another, and runs
all planted defects on it. What the simulator does not load stays as it is, and so does a parameter that a call names.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .mutants import MUTANTS, Mutant
from .patterns import Binding, bindings, is_private, name_field
from .planted import ROOT, product_modules

_FIELDS: Mapping[type, str] = {ast.Attribute: "attr", ast.keyword: "arg", ast.alias: "name", ast.Constant: "value"}
"""Where else a private name is: a constant is in `__slots__`, or an argument of getattr."""

ROOMS = ("adapters", "elastic_agent", "launcher", "master", "rendezvous", "src", "tests/simulation")


@dataclass(frozen=True, slots=True)
class Names:
    """What is renamed, and what is not.

    Attributes:
        private: the new names of all that is private, by the old.
        passed: functions and classes, and what is passed to them by keyword: these parameters keep their names. The
            function "" is any that is called by another name than its own.
    """

    private: Mapping[str, str]
    passed: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, sources: Iterable[str]) -> "Names":
        """The names of these modules, which use each other."""
        names: set[str] = set()
        functions: set[str] = set()
        passed: set[tuple[str, str]] = set()
        kept: set[str] = set()  # in code that the product writes, or others' names
        for source in sources:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
                    kept |= {alias.name for alias in node.names}
                if isinstance(node, ast.JoinedStr):
                    kept |= {
                        word
                        for each in node.values
                        if isinstance(each, ast.Constant)
                        for word in re.findall(r"\w+", str(each.value))
                    }
                if isinstance(node, ast.Call):
                    called = _called(node)
                    passed |= {(called, keyword.arg) for keyword in node.keywords if keyword.arg}
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
                elif name_field(node) and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
                    names.add(getattr(node, name_field(node)) or "")
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    functions.add(node.name)
                if isinstance(node, ast.ClassDef):
                    passed |= {("__init_subclass__", keyword.arg) for keyword in node.keywords if keyword.arg}
        private = sorted(name for name in names - kept if is_private(name) and not name.endswith("_"))
        new = {name: f"{'__' if name.startswith('__') else '_'}renamed_{at}" for at, name in enumerate(private)}
        own = {(name if name in functions else "", keyword) for name, keyword in passed if name != "replace"}
        return cls(new, frozenset(own))

    def rename(self, source: str, *, variables: bool = True) -> str:
        """The same module with other names; without `variables` only what is private has others."""
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        local = bindings(tree) if variables else {}
        kept = {local[node] for node in self._parameters(tree, "") if node in local}
        others = [each for each in dict.fromkeys(local.values()) if each not in kept]
        new = {each: f"renamed_{at}" for at, each in enumerate(others)}
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._rename_nonlocals(node, local, new)
        for node in nodes:
            part = name_field(node) or _FIELDS.get(type(node), "")
            name = getattr(node, part, None)
            if node in local:
                setattr(node, part, new.get(local[node], name))
            elif isinstance(name, str):
                setattr(node, part, self.private.get(name, name))
        return ast.unparse(tree)

    def _parameters(self, node: ast.AST, owner: str) -> Iterator[ast.arg]:
        """Those that keep their names."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = getattr(node, "name", "")
            called = {name, ""} | ({owner, "cls", "super"} if name == "__init__" else set[str]())
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg) and any((each, argument.arg) in self.passed for each in called):
                    yield argument
        for child in ast.iter_child_nodes(node):
            yield from self._parameters(child, getattr(node, "name", owner))

    @staticmethod
    def _rename_nonlocals(
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        local: Mapping[ast.AST, Binding],
        new: Mapping[Binding, str],
    ) -> None:
        for statement in function.body:
            if isinstance(statement, ast.Nonlocal):
                inside = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node in local]
                names = {node.id: new.get(local[node], node.id) for node in inside}
                statement.names = [names[name] for name in statement.names]


def _called(call: ast.Call) -> str:
    """The last name of what is called, or is to be."""
    called = call.args[0] if call.args and ast.unparse(call.func).endswith("partial") else call.func
    return getattr(called, "attr", getattr(called, "id", ""))


def loaded_files() -> list[Path]:
    """The files of the product that the simulator uses, from the root of the repository."""
    from . import explore, kinds  # noqa: F401

    files = (Path(str(module.__file__)).resolve() for module in product_modules())
    return sorted({file.relative_to(ROOT) for file in files if not file.name.endswith("_pb2.py")})


def write_product(folder: Path) -> None:
    """The renamed product in `folder`, with its simulator."""
    for room in ROOMS:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=ignored)
    files = loaded_files()
    simulator = sorted(file.relative_to(ROOT) for file in (ROOT / "tests/simulation").glob("*.py"))
    private = Names.of(map(_source, files)).private
    names = Names(private, Names.of(map(_source, (*files, *simulator))).passed)
    for file in files:
        (folder / file).write_text(names.rename(_source(file)), encoding="utf-8")
    for file in filter(_extends_product, simulator):
        (folder / file).write_text(names.rename(_source(file), variables=False), encoding="utf-8")


def _extends_product(file: Path) -> bool:
    """A class in this file extends one of the product, and may use what is private to that."""
    nodes = list(ast.walk(ast.parse(_source(file))))
    imports = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elastic_run")
    ]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    return any(isinstance(node, ast.ClassDef) and names & {ast.unparse(base) for base in node.bases} for node in nodes)


def _source(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def find_missed(mutants: Sequence[Mutant], folder: Path) -> Mapping[str, str]:
    """Which of these are not seen in the renamed product, which is written into `folder`; and what was seen instead."""
    write_product(folder)
    run = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", "--json", *(mutant.name for mutant in mutants)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = {line["name"]: line for line in map(json.loads, run.stdout.splitlines())}
    answers = {mutant: found.get(mutant.name, {"rule": "", "what": "no answer"}) for mutant in mutants}
    return {mutant.name: answer["what"][-300:] for mutant, answer in answers.items() if answer["rule"] != mutant.rule}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.renamed", description=__doc__)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write the copy here, and leave it")
    folder = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as temporary:
        missed = find_missed(MUTANTS, folder or Path(temporary) / "product")
    for name, what in missed.items():
        print(f"{name}: {what}")
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} planted defects are seen in the renamed product")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
