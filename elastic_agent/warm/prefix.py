"""What a script is sure to import first, read from its source: the imports before anything else happens in it.

Python parses; nothing of the script runs. Between imports there may be what cannot change what they do: functions,
plain classes, constants. A module of the script's own folder is read in the same way, where it is imported. The reading
ends at the first line that could do anything.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_ONLY_AST = 0x400
LARGEST = 1 << 20
"""Bytes of a source file that is read."""

_PLAIN = frozenset(["Constant", "Name", "Attribute", "Load"])
_COMPOUND = frozenset(["Tuple", "List", "Dict", "Set", "UnaryOp", "BinOp", "Subscript", "Slice", "Starred", "keyword"])


def leading_imports(kind: str, target: str) -> list[str]:
    """The names, in order, without repetition; none where the source is not there or not to be understood.

    Args:
        kind: "script", "module" or "run_path".
        target: the file, or the module's name.
    """
    if kind == "module":
        file = _file_of(target.split("."), os.getcwd()) if "." not in target else None
        if file and file.endswith("/__init__.py"):
            file = f"{file.removesuffix('__init__.py')}__main__.py"
        folder = os.getcwd()
    else:
        file = target
        folder = os.path.dirname(os.path.realpath(target)) if kind == "script" else os.getcwd()
    names: list[str] = []
    if file and not getattr(sys.flags, "safe_path", False):
        _Reader(folder, names).read(file)
    return list(dict.fromkeys(names))


class _Reader:
    def __init__(self, folder: str, names: list[str]) -> None:
        self._folder = folder
        self._names = names
        self._seen: set[str] = set()

    def read(self, file: str) -> bool:
        """Adds what `file` imports; False where something else begins in it."""
        if file in self._seen:
            return True
        self._seen.add(file)
        try:
            with open(file, "rb") as opened:
                source = opened.read(LARGEST + 1)
            if len(source) > LARGEST:
                return False
            tree: Any = compile(source, file, "exec", _ONLY_AST, dont_inherit=True)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return all(self._statement(node) for node in tree.body)

    def _statement(self, node: Any) -> bool:
        match type(node).__name__:
            case "Import":
                return all(self._module(alias.name) for alias in node.names)
            case "ImportFrom":
                return self._from(node)
            case "FunctionDef" | "AsyncFunctionDef":
                return not node.decorator_list and _is_inert(*node.args.defaults, *node.args.kw_defaults)
            case "ClassDef":
                return (
                    not node.decorator_list
                    and not node.keywords
                    and _is_inert(*node.bases)
                    and all(
                        type(inner).__name__ not in ("Import", "ImportFrom") and self._statement(inner)
                        for inner in node.body
                    )
                )
            case "Assign":
                return all(type(target).__name__ == "Name" for target in node.targets) and _is_inert(node.value)
            case "AnnAssign":
                return type(node.target).__name__ == "Name" and _is_inert(node.value)
            case "Expr":
                return type(node.value).__name__ == "Constant"
            case "Pass":
                return True
            case _:
                return False

    def _from(self, node: Any) -> bool:
        if node.level:
            return False  # of the script's own package, which Python has to find first
        if node.module == "__future__":
            return True
        if not self._module(node.module):
            return False
        own = _file_of(node.module.split("."), self._folder)
        if own is None:
            return True
        # What is taken from a package may be a module of its own.
        inner = [_file_of([*node.module.split("."), alias.name], self._folder) for alias in node.names]
        return all(self.read(file) for file in inner if file)

    def _module(self, name: str) -> bool:
        """One name after `import`: read where it is the user's own, noted where it is installed."""
        parts = name.split(".")
        if parts[0] in sys.builtin_module_names or _file_of(parts[:1], self._folder) is None:
            if _is_package(f"{self._folder}/{parts[0]}"):
                return False  # a folder without __init__.py: who wins depends on all the others
            self._names.append(name)
            return True
        files = [_file_of(parts[: length + 1], self._folder) for length in range(len(parts))]
        return all(file is not None and self.read(file) for file in files)


def _file_of(parts: Sequence[str], folder: str) -> str | None:
    base = "/".join([folder, *parts])
    for file in (f"{base}/__init__.py", f"{base}.py"):
        if os.path.isfile(file):
            return file
    return None


def _is_package(folder: str) -> bool:
    return os.path.isdir(folder)


def _is_inert(*expressions: Any) -> bool:
    """Whether working these out can do nothing."""
    for expression in expressions:
        if expression is None:
            continue
        name = type(expression).__name__
        if name in _PLAIN:
            inner: list[Any] = [expression.value] if name == "Attribute" else []
        elif name in _COMPOUND:
            inner = [part for field in expression._fields for part in _parts(getattr(expression, field))]
        else:
            return False
        if not _is_inert(*inner):
            return False
    return True


def _parts(value: Any) -> list[Any]:
    """The expressions in one field of a node, which may be one, several, or an operator."""
    listed: list[Any] = [*value] if isinstance(value, list) else [value]
    return [part for part in listed if hasattr(part, "lineno")]
