"""Whether what was read is still as it was: files by what the kernel says of them, and where packages are installed."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    Stamps = dict[str, tuple[int, ...] | None]

_COMPILED = "__pycache__"


def stamp_of(path: str) -> tuple[int, ...]:
    """What is another after each change; empty where nothing is."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ctime_ns, found.st_size, found.st_ino


def first_changed(stamps: Stamps) -> str:
    """The first of these paths that is not as it was (None: it counts as changed); empty where all are."""
    return next((path for path, known in stamps.items() if stamp_of(path) != known), "")


def package_folders() -> list[str]:
    """Where packages are installed."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


class Folders:
    """Where packages are installed, as it is when this is made."""

    def __init__(self) -> None:
        self._noted = [(path, _changed_at(path), entries_of(path)) for path in package_folders()]

    def changed(self) -> bool:
        """Whether anything was put there or taken away since."""
        for path, at, entries in self._noted:
            # The first import of a module that lies there directly makes a folder for what Python compiles.
            made = entries_of(path) == sorted([*entries, _COMPILED])
            if _changed_at(path) != at and not made:
                return True
        return False


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def entries_of(folder: str) -> list[str]:
    """The names in it, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
