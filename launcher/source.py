"""A digest of what a command's workers run: the script, and what it imports of its own folder.

Two projects may have scripts of one name. Where a job's id was derived from the command, the nodes compare these
digests, so that such projects are not taken for one job. Nothing of the script runs: its text is read. Names are
relative to the folder from which the script imports, so the digest is the same wherever the project lies. What is
installed, and what is imported under a name that is computed, is not looked at.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..rendezvous.host.named_files import LARGEST_SETTINGS, read_named
from .settings import Command

_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import\b[ \t]*(\([^)]*\)|[^\n#;]*)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
"""Found in the text: a parser takes seconds where a project has hundreds of files, and knows one version of Python."""

_WORD = re.compile(r"[^\W\d][\w.]*")

MOST = 2000
"""Files that are read."""

NAMED = 8
"""Files with a digest of their own; the others have one together. They stand in each node's key in the store."""


def digests(command: Command) -> tuple[str, ...]:
    """`name:digest` of the script and of its own modules; none where it is no source.

    Raises nothing: a file that cannot be read has a digest that says so.
    """
    folder, first = _start(command)
    if first is None:
        return ()
    found = {name: _digest(data) for name, data in _Reader(folder, parses=command.kind != "executable").read(first)}
    script, *modules = found
    named = [script, *sorted(modules)][:NAMED]
    rest = sorted(set(found) - set(named))
    together = _digest("\n".join(f"{name}:{found[name]}" for name in rest).encode())
    return (*(f"{name}:{found[name]}" for name in named), *([f"{len(rest)} more:{together}"] if rest else ()))


def _start(command: Command) -> tuple[Path, Path | None]:
    """The folder from which the command's own modules are imported, and its first file."""
    target = Path(command.target)
    match command.kind:
        case "script":
            main = target / "__main__.py" if target.is_dir() else Path(os.path.realpath(target))
            return main.parent, main
        case "run_path":
            return Path.cwd(), target / "__main__.py" if target.is_dir() else target
        case "module":
            place = Path.cwd().joinpath(*command.target.split("."))
            for file in (place / "__main__.py", place.with_name(f"{place.name}.py")):
                if file.is_file():
                    return Path.cwd(), file
            return Path.cwd(), None  # it is installed
        case "executable":
            with_path = target if "/" in command.target else None
            return Path.cwd(), with_path if with_path and _read(with_path)[:2] == b"#!" else None


class _Reader:
    """Reads a file and, where it is Python, what it imports of `folder`."""

    def __init__(self, folder: Path, *, parses: bool) -> None:
        self._folder = folder
        self._parses = parses
        self._files: dict[tuple[str, ...], Path | bool | None] = {}

    def read(self, first: Path) -> Iterator[tuple[str, bytes]]:
        """(name, source) of each file, `first` first."""
        waiting, seen = [*self._packages_of(first), first][::-1], set[Path]()
        while waiting and len(seen) < MOST:
            file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            data = _read(file)
            yield self._name(file), data
            if self._parses:
                waiting += reversed([found for name in self._imports(file, data) for found in self._find(name)])

    def _name(self, file: Path) -> str:
        return file.relative_to(self._folder).as_posix() if file.is_relative_to(self._folder) else file.name

    def _packages_of(self, file: Path) -> list[Path]:
        """Of a module that lies in packages below the folder, their `__init__.py`."""
        if not file.is_relative_to(self._folder):
            return []
        inits = [parent / "__init__.py" for parent in file.parents if parent.is_relative_to(self._folder)]
        try:
            return [init for init in reversed(inits[:-1]) if init.is_file()]
        except OSError:
            return []

    def _imports(self, file: Path, data: bytes) -> Iterator[tuple[str, ...]]:
        """What `file` imports, wherever in it, as the parts of absolute names; and what only looks like an import."""
        inside = file.relative_to(self._folder).parent.parts if file.is_relative_to(self._folder) else ()
        text = data.decode(errors="replace").replace("\\\n", " ")
        for dots, module, names, plain in _IMPORT.findall(text):
            if plain:
                yield from (tuple(name.split(".")) for name in _WORD.findall(plain))
                continue
            base = inside[: len(inside) - len(dots) + 1] if dots else ()
            package = (*base, *(part for part in module.split(".") if part))
            yield from ((*package, name) for name in _WORD.findall(names) or ("*",))

    def _find(self, name: tuple[str, ...]) -> Iterator[Path]:
        """The files of the folder that an import of `name` executes; its last part may be no module."""
        for length in range(1, len(name) + 1):
            part = name[:length]
            if part not in self._files:
                self._files[part] = self._file(part)
            file = self._files[part]
            if isinstance(file, Path):
                yield file
            if file is None:
                return  # nor is there anything below it

    def _file(self, name: tuple[str, ...]) -> "Path | bool | None":
        """The module's file; True for a folder without one; None where there is neither."""
        place = self._folder.joinpath(*name)
        try:
            for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                if file.is_file():
                    return file
            return place.is_dir() or None
        except OSError:  # a folder that may not be read, or a word that is no name of a file
            return None


def _read(file: Path) -> bytes:
    try:
        return read_named(file, LARGEST_SETTINGS)
    except OSError as error:
        return f"cannot be read: {error.strerror}".encode()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=4).hexdigest()
