"""Modules that are loaded and not yet there: imported ahead, hidden, and revealed when the script imports them.

`sys.modules` of a worker begins as that of a fresh interpreter. What was imported ahead is kept in groups, one for each
import that the script is known to make. The first import of a name in a group reveals it, with all groups before it,
because its modules were loaded when those were there. Until then nobody sees that the work is done already.

A group is revealed only where the surroundings are those in which it was imported: the environment, the search path,
the working directory and the import hooks as they were at the start, and the same packages installed. Otherwise
`spoiled` is called, by which the process begins again without it, unless it is too late for that.
"""

from __future__ import annotations

import os
import sys

from . import specs
from .frames import OUTDATED
from .hazards import added_to, variables_since
from .native import never_free

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

    from .step import Step

_COMPILED = "__pycache__"


class Group:
    """What one import brought.

    Attributes:
        step: what was imported, and what the script itself had changed before it.
        modules: by name, as they came into `sys.modules`.
        environment: the variables that the import set, or removed (None).
        added: for each of the lists of `added_to`, what the import put before it and behind it.
        drawn: the import drew random numbers.
        folders: in which folders modules were looked for: the entries of `sys.path_importer_cache`.
        attributes: (package, name, module): what the import of submodules set on packages of earlier groups.
    """

    __slots__ = ("added", "attributes", "drawn", "environment", "folders", "modules", "step")

    def __init__(
        self,
        step: Step,
        modules: dict[str, ModuleType],
        environment: dict[str, str | None],
        added: list[tuple[list[Any], list[Any]]],
        drawn: bool,
        folders: dict[str, Any],
    ) -> None:
        self.step = step
        self.modules = modules
        self.environment = environment
        self.added = added
        self.drawn = drawn
        self.folders = folders
        self.attributes: list[tuple[ModuleType, str, ModuleType]] = []


class Surroundings:
    """What must not have changed since the start where modules that were imported ahead are to be used."""

    __slots__ = ("cwd", "environment", "hooks", "meta_path", "path")

    def __init__(self, path: Sequence[str]) -> None:
        self.accept()
        self.path = list(path)

    def accept(self) -> None:
        """They are as they should be."""
        self.cwd = _cwd()
        self.environment = dict(os.environ)
        self.path = list(sys.path)
        self.meta_path = list(sys.meta_path)
        self.hooks = list(sys.path_hooks)

    def written(self) -> dict[str, str | None]:
        """The variables that are others now, or gone (None)."""
        return variables_since(self.environment)

    def moved(self) -> list[str] | None:
        """The search path, where it is another one now."""
        return None if sys.path == self.path else list(sys.path)

    def change(self, expected: Mapping[str, str | None], path: Sequence[str] | None = None) -> str:
        """What is different now, in words; empty where nothing is but the variables that are `expected` to be.

        `path` is what the search path is expected to be; None: what it was.
        """
        wanted = {name: value for name, value in expected.items() if self.environment.get(name) != value}
        written = self.written()
        if written != wanted:
            names = sorted(name for name in {*written, *wanted} if written.get(name, 0) != wanted.get(name, 0))
            return f"the script changes {', '.join(names[:5])} in its environment"
        if sys.path != (self.path if path is None else path):
            return "the script changes sys.path"
        if sys.meta_path != self.meta_path or sys.path_hooks != self.hooks:
            return "the script installs an import hook"
        if sys.gettrace() is not None or sys.getprofile() is not None:
            return "the script is traced or profiled"
        if _cwd() != self.cwd:
            return "the script changes its working directory"
        return ""


class Folders:
    """Where packages are installed, as it is when this is made."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: list[tuple[str, int, set[str] | None]] = []
        for path in sys.path:
            if path.endswith(("site-packages", "dist-packages")):
                entries = None if os.path.isdir(f"{path}/{_COMPILED}") else _entries(path)
                self._noted.append((path, _changed_at(path), entries))

    def changed(self) -> bool:
        """Whether anything was put there or taken away since."""
        for path, at, entries in self._noted:
            # The first import of a module that lies there directly makes a folder for what Python compiles.
            if _changed_at(path) != at and (entries is None or _entries(path) - {_COMPILED} != entries):
                return True
        return False


class Stash:
    """Has the groups, and looks at what is about to be loaded (`specs.add`).

    Args:
        repairs: by module name, what makes a module as if it had been imported just now.
        spoiled: called with the name and the reason where a group should not be revealed; returns where it must be.
    """

    def __init__(self, repairs: Mapping[str, Callable[[Any], None]], spoiled: Callable[[str, str], None]) -> None:
        self._repairs = repairs
        self._spoiled = spoiled
        self._groups: list[Group] = []
        self._index: dict[str, int] = {}
        self._revealed = 0
        self._pid = os.getpid()
        self._random: object = None
        self.revealed: Callable[[], None] | None = None
        self.surroundings: Surroundings | None = None
        self._folders = Folders()  # before anything is imported from there

    def begin(self, surroundings: Surroundings) -> None:
        """The script begins in this process."""
        self._pid = os.getpid()
        self.surroundings = surroundings
        if self.names and self._folders.changed():
            self._spoiled(self.names[0], OUTDATED)  # now, where nothing is done twice
        specs.add(self.look)

    @property
    def names(self) -> list[str]:
        """What is hidden, in order."""
        return [group.step.name for group in self._groups[self._revealed :]]

    @property
    def modules(self) -> int:
        """How many modules were hidden at first."""
        return len(self._index)

    def has(self, name: str) -> bool:
        """Whether that module was hidden at first."""
        return name in self._index

    def hide(self, groups: Sequence[Group], lists: Sequence[list[Any]]) -> None:
        """Takes the modules of `groups` out of sight, and what their imports added to the lists of `added_to`.

        `lists` is what these held before.
        """
        for listed, before in zip(added_to(), lists, strict=False):
            listed[:] = before
        self._groups = list(groups)
        self._revealed = 0
        self._index = {name: number for number, group in enumerate(groups) for name in group.modules}
        for number, group in enumerate(groups):
            for folder in group.folders:
                sys.path_importer_cache.pop(folder, None)
            for name, module in group.modules.items():
                sys.modules.pop(name, None)
                package, _, child = name.rpartition(".")
                parent = self._module(package) if package else None
                if parent is None or self._index.get(package) == number:
                    continue
                if vars(parent).get(child) is module:
                    delattr(parent, child)
                    group.attributes.append((parent, child, module))

    def _module(self, name: str) -> ModuleType | None:
        number = self._index.get(name)
        found = sys.modules.get(name) if number is None else self._groups[number].modules.get(name)
        return found if isinstance(found, type(sys)) else None

    def look(self, name: str, spec: Any) -> Any:
        """The spec that was found for a hidden module, with a loader that reveals it. Nothing happens before that."""
        number = self._index.get(name)
        if number is None or number < self._revealed:
            return spec
        own: Any = getattr(self._groups[number].modules[name], "__spec__", None)
        if type(own) is type(spec) and not _alike(own, spec):
            if os.getpid() == self._pid:
                self._spoiled(name, "the script has arranged for another module of that name")
            return spec
        spec.loader = Revealing(self, number, name, spec.loader)
        return spec

    def reveal(self, last: int) -> None:
        """Puts the groups up to that number where an import would have put them."""
        if last < self._revealed:
            return
        groups = self._groups[self._revealed : last + 1]
        expected: dict[str, str | None] = {}
        path: list[str] | None = None
        for group in groups:
            expected |= group.step.environment
            path = path if group.step.path is None else group.step.path
        change = self.surroundings.change(expected, path) if self.surroundings else ""
        if not change and self._folders.changed():
            change = "the script installs packages"
        if os.getpid() != self._pid:
            change = ""  # a child that the script has forked cannot begin again, and has the libraries in its memory
        elif not change and any(group.drawn for group in groups) and self._seeded():
            change = "the script draws random numbers before an import that draws some"
        if change:
            self._spoiled(self._groups[last].step.name, change)
        for group in groups:
            for name, module in group.modules.items():
                sys.modules.setdefault(name, module)
            for folder, finder in group.folders.items():
                sys.path_importer_cache.setdefault(folder, finder)
            for parent, child, module in group.attributes:
                setattr(parent, child, module)
            set_variables(group.environment)
            for listed, (front, back) in zip(added_to(), group.added, strict=False):
                listed[:] = [*front, *listed, *back]
            for name in group.modules:
                if repair := self._repairs.get(name):
                    repair(group.modules[name])
            if self._random is None and (random := sys.modules.get("random")):
                self._random = random.getstate()
        self._revealed = last + 1
        if self._revealed == len(self._groups):
            specs.remove(self.look)
        if warnings := sys.modules.get("warnings"):
            _tell_of_filters(warnings)
        if self.surroundings:
            self.surroundings.accept()
        if self.revealed:
            self.revealed()

    def _seeded(self) -> bool:
        """Whether the script has used the random numbers that all Python code shares."""
        random = sys.modules.get("random")
        return random is not None and self._random is not None and random.getstate() != self._random

    def keep(self) -> None:
        """At the end of the process: what came from here is not taken apart with the script's own modules.

        It belongs to memory that is shared with other processes, and each page would be copied to be freed.
        """
        for group in self._groups:
            never_free(group.modules)
            for name in group.modules:
                sys.modules.pop(name, None)

    def module(self, number: int, name: str) -> ModuleType:
        """One of the modules of a group."""
        return self._groups[number].modules[name]


class Revealing:
    """The loader of a hidden module. For everything but the loading it is the one that was found.

    The machinery makes a new module and finds the hidden one in its place: so nothing is ever written into that.
    """

    def __init__(self, stash: Stash, number: int, name: str, found: Any) -> None:
        self._stash = stash
        self._number = number
        self._name = name
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def create_module(self, spec: Any) -> None:
        """None: an empty one will do."""

    def exec_module(self, module: ModuleType) -> None:
        """Puts the hidden module in the place of `module`."""
        sys.modules[self._name] = self._stash.module(self._number, self._name)
        self._stash.reveal(self._number)


def set_variables(changes: Mapping[str, str | None]) -> None:
    """Sets these variables, and removes those that are None."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _alike(own: Any, found: Any) -> bool:
    """Whether a module was made from what was found now."""
    if found.loader is None:  # a folder without code
        return list(own.submodule_search_locations or ()) == list(found.submodule_search_locations or ())
    return own.origin == found.origin and type(own.loader) is type(found.loader)


def _tell_of_filters(warnings: Any) -> None:
    # Its name is not the same in all versions; without it, warnings that were seen are looked up as before.
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        if mutated := getattr(warnings, name, None):
            mutated()
            return


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _entries(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
