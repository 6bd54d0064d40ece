"""The product's sources, each read and parsed once for all tests of a process."""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("launcher", "elastic_agent", "adapters", "master", "rendezvous")
"""The folders of the product, each importing only those after it."""


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """The Python files below these folders of the repository, sorted; symbolic links are not followed."""
    return tuple(sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")))


@cache
def product() -> tuple[Path, ...]:
    """Every module of the product but those that protoc has generated."""
    return tuple(path for path in files(*FOLDERS) if not path.name.endswith("_pb2.py"))


@cache
def text(path: Path) -> str:
    """The content of a file."""
    return path.read_text(encoding="utf-8")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's tree, the module first. Nobody may change them."""
    tree = tuple(ast.walk(ast.parse(text(path))))
    gc.freeze()  # all trees are millions of objects: a collection that looks through them is some test's half second
    return tree


def place(path: Path) -> str:
    """A file as messages and pages name it: from the root of the repository."""
    return path.relative_to(ROOT).as_posix()
