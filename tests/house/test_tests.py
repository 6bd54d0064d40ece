"""The house rules for tests: whom they import, what they may set, and what a unit test may do."""

import ast
import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ..doubles.virtual_loop import VirtualLoop
from ..purity import Impure, watched
from .sources import files, nodes

TESTS = Path(__file__).parents[1]

IMPORTED_TESTS: Mapping[str, str] = {
    "integration/test_warm_workers.py": "test_workers",  # whose tests it runs again, with workers that start warm
}
"""Modules that import test modules still. This list may only become shorter."""

REPLACED: Mapping[str, str] = {
    "cluster/test_api_client.py: _read_token_file": "of the package kubernetes, to count how often it reads",
    "component/adapters/torch/test_state.py: _trains": "what this process has done, which nothing undoes",
    "component/elastic_agent/diagnosis/test_looks.py: _read": "the kernel",
    "component/elastic_agent/warm/test_hazards.py: _warnings": "a module of Python's, as another version has it",
    "integration/test_evidence.py: _ACCELERATORS": "devices that this machine lacks",
    "integration/test_evidence.py: _address": "to count what is parsed",
    "integration/test_evidence.py: _read": "to count what is read of the kernel",
    "integration/test_guardian.py: _read": "what the guardian loads",
    "integration/test_guardian.py: _tell": "to hear what the guardian is told",
}
"""Private names that tests replace still, each with what stands behind it. This list may only become shorter."""

WRAPPED: Mapping[str, str] = {
    "faults/failpoint.py: _cut": "the process of a real agent ends in the midst of a vote",
    "faults/failpoint.py: _list": "and while a new master reads",
    "faults/failpoint.py: _write_batch": "and within a write",
}
"""Private attributes that are set from outside, in processes that a test starts. This list may only become shorter."""


def modules() -> Iterator[tuple[str, ast.AST]]:
    """Every module of the tests, with its path below their folder."""
    return ((path.relative_to(TESTS).as_posix(), nodes(path)[0]) for path in files("tests"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def names_of_modules(node: ast.ImportFrom, names: list[str]) -> list[str]:
    """The parts of the module's name, and what is imported from a folder of tests."""
    parts = (node.module or "").split(".")
    return [*parts, *(names if node.level and not parts[-1].startswith("test_") else ())]


def test_no_module_imports_a_test_module() -> None:
    found = dict[str, set[str]]()
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [each.name.rpartition(".")[2] for each in node.names]
                names = names if isinstance(node, ast.Import) else names_of_modules(node, names)
                if tests := {name for name in names if name.startswith("test_")}:
                    found.setdefault(path, set()).update(tests)
    assert {path: " ".join(sorted(tests)) for path, tests in found.items()} == IMPORTED_TESTS


def owned(tree: ast.AST) -> dict[ast.AST, set[str]]:
    """By each node of a class the private attributes that the class sets of `self`: it may set those of others, too."""
    found = dict[ast.AST, set[str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            own = {each.attr for each in attributes_set(node) if is_own(each)}
            found |= {each: found.get(each, set()) | own for each in ast.walk(node)}
    return found


def attributes_set(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The private attributes that are assigned to or deleted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and is_private(node.attr):
            yield node


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_test_sets_a_private_attribute() -> None:
    found = set[str]()
    for path, tree in modules():
        own = owned(tree)
        for node in attributes_set(tree):
            if not is_own(node) and node.attr not in own.get(node, ()):
                found.add(f"{path}: {node.attr}")
    assert found == set(WRAPPED)


def test_no_private_name_is_replaced_but_those_with_a_reason() -> None:
    """By `setattr`, a fixture of pytest's or `unittest.mock`, given the name as text."""
    found = set[str]()
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                ("setattr", "delattr", "patch", "object", "__setattr__")
            ):
                texts = (each.value for each in node.args[:2] if isinstance(each, ast.Constant))
                names = (str(text).rpartition(".")[2] for text in texts)
                found |= {f"{path}: {name}" for name in names if is_private(name)}
    assert found == set(REPLACED)


def test_no_object_is_made_without_its_constructor() -> None:
    calls = (
        f"{path}:{node.lineno}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "__new__"
    )
    assert list(calls) == []


def connect() -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


def listen() -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("\0elastic-run-tests-purity")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: subprocess.run(["true"], check=True), "starts no process"),
        (os.fork, "starts no process"),
        (multiprocessing.get_context("spawn").Process(target=print).start, "starts no process"),
        (lambda: os.system("true"), "starts no process"),
        (lambda: os.posix_spawn("/bin/true", ["true"], {}), "starts no process"),
        (connect, "opens no port"),
        (listen, "opens no port"),
        (lambda: time.sleep(0.001), "does not sleep"),
        (lambda: asyncio.run(asyncio.sleep(0.05)), "does not sleep"),
        (lambda: __import__("tensorflow.nothing"), "needs no framework"),
    ],
)
def test_what_is_not_pure_is_refused_to_a_unit_test(
    act: Callable[[], object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with watched() as found:
        with pytest.raises(Impure, match=words):
            act()
        assert len(found) == 1, "it is noted, should somebody take the error"


def test_what_event_loops_do_is_pure() -> None:
    with watched() as found, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(asyncio.sleep(3600))
        time.sleep(0)
        for end in socket.socketpair():
            end.close()
    assert not found


def test_tests_of_units_and_components_lie_as_the_product_does() -> None:
    folders = {path.parent for kind in ("unit", "component") for path in (TESTS / kind).rglob("*/test_*.py")}
    ours = {folder.relative_to(TESTS).parts[1:] for folder in folders}
    assert [each for each in sorted(ours) if not TESTS.parent.joinpath(*each).is_dir()] == []
