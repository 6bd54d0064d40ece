"""What packages read beside their own files when they are imported: their settings, and the year.

An interpreter that has imported them ahead is of no use once one of these has changed. Where a package looks is worked
out here and not asked of it: it may note what it answers, or make a folder.
"""

from __future__ import annotations

import os

from .stamps import entries_of, first_changed, stamp_of

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .stamps import Stamps


class Settings:
    """What the settings were before they were read.

    Args:
        looks: by module name, the paths at which its import looks for settings, also those where nothing is.
        year: the current one, which is read for copyright lines, and to tell what century a date of two digits means.
    """

    def __init__(self, looks: Mapping[str, Callable[[], Iterable[str]]], year: int) -> None:
        self._looks = looks
        self._year = year
        self._noted: Stamps = {}

    def now(self) -> dict[str, Stamps]:
        """All of them, by module name: to be asked before an import, so that no change after its reading is missed."""
        return {
            name: {path: stamp_of(path) for path in map(os.path.abspath, look())} for name, look in self._looks.items()
        }

    def note(self, modules: Iterable[str], before: Mapping[str, Stamps]) -> None:
        """These modules have just been imported, and `before` is what `now` said then."""
        for name in self._looks.keys() & set(modules):
            for path in map(os.path.abspath, self._looks[name]()):
                # Nobody knows how a file was read that came in the meantime: it counts as changed.
                self._noted[path] = stamp_of(path) if name in _MAKES else None
            self._noted |= before[name]

    def changed(self, year: int) -> str:
        """What is not as it was, in words; empty where all is."""
        if path := first_changed(self._noted):
            return f"{path} has changed"
        return "" if year == self._year else "the year has changed"


def _within(folder: str) -> list[str]:
    return [folder, *(f"{folder}/{name}" for name in entries_of(folder))]


def _of_matplotlib(variable: str, usual: str) -> str:
    given = os.environ.get("MPLCONFIGDIR")
    return given or f"{os.environ.get(variable) or os.path.expanduser(usual)}/matplotlib"


_CONFIG, _CACHE = ("XDG_CONFIG_HOME", "~/.config"), ("XDG_CACHE_HOME", "~/.cache")


def _matplotlib() -> list[str]:
    given = os.environ.get("MATPLOTLIBRC")
    named = [given, f"{given}/matplotlibrc"] if given else []
    return ["matplotlibrc", *named, f"{_of_matplotlib(*_CONFIG)}/matplotlibrc"]


def _fonts() -> list[str]:
    return [path for path in _within(_of_matplotlib(*_CACHE)) if "/fontlist-" in path and path.endswith(".json")]


LOOKS: Mapping[str, Callable[[], Iterable[str]]] = {
    "fsspec.config": lambda: _within(os.path.expanduser(os.environ.get("FSSPEC_CONFIG_DIR") or "~/.config/fsspec")),
    "matplotlib": _matplotlib,
    "matplotlib.font_manager": _fonts,
    "matplotlib.style": lambda: _within(f"{_of_matplotlib(*_CONFIG)}/stylelib"),
}
"""By module name: the paths at which its import looks for settings."""

_MAKES = frozenset(["matplotlib.font_manager"])
"""Modules that make what they do not find, always the same: here the list of the fonts that the machine has."""

_NO_FOLDERS = ("/proc/", "/sys/")
"""Below these nobody can make one, whatever the kernel says to a superuser."""


def makes_temporary_folder(module: str) -> str:
    """Why that module is not to be imported ahead, in words: matplotlib, where it would make temporary folders."""
    if module != "matplotlib":
        return ""
    for folder in (os.path.abspath(_of_matplotlib(*place)) for place in (_CONFIG, _CACHE)):
        there = folder
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if f"{there}/".startswith(_NO_FOLDERS) or not os.path.isdir(there) or not os.access(there, os.W_OK):
            return f"would create a temporary folder, because {folder} is not writable"
    return ""
