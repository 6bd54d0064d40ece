"""Modules that are loaded and not yet there: imported ahead, hidden, and revealed when the script imports them.

`sys.modules` of a worker begins as that of a fresh interpreter. What was imported ahead is kept in groups, one for each
import. The first import of a name in a group reveals it, with all groups before it, because its modules were loaded
when those were there. Until then nobody sees that the work is done already.

A group notes which variables its import has read. Where the script has changed one of them since, the modules that can
read it again do so (`repairs.REREADS`), and `stale` is called.
"""

from __future__ import annotations

import _thread
import os
import sys

from . import specs
from .hazards import added_to, tell_of_filters
from .native import never_free

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import ModuleType
    from typing import Any

    Added = list[tuple[list[Any], list[Any]]]


class Group:
    """What one import brought.

    Attributes:
        name: the module that was imported.
        modules: by name, as they came into `sys.modules`.
        environment: the variables that the import set, or removed (None).
        reads: the variables that the import read, with their values then (None: not set).
        added: for each of the lists of `added_to`, what the import put before it and behind it.
        folders: in which folders modules were looked for: the entries of `sys.path_importer_cache`.
        attributes: (package, name, module): what the import of submodules set on packages of earlier groups.
    """

    def __init__(
        self,
        name: str,
        modules: dict[str, ModuleType],
        environment: dict[str, str | None],
        reads: dict[str, str | None],
        added: Added,
        folders: dict[str, Any],
    ) -> None:
        self.name = name
        self.modules = modules
        self.environment = environment
        self.reads = reads
        self.added = added
        self.folders = folders
        self.attributes: list[tuple[ModuleType, str, ModuleType]] = []


def of_packages(added: Added, packages: Collection[str]) -> tuple[Added, Added]:
    """Divides what an import added to the lists of `added_to`: these packages' filters for warnings, and the rest.

    Args:
        added: for each list, what came before it and behind it.
        packages: top-level names. A filter belongs to the package that defines its category.
    """
    theirs = [[one for one in end if one[2].__module__.partition(".")[0] in packages] for end in added[-1]]
    rest = [[one for one in end if one not in own] for end, own in zip(added[-1], theirs, strict=True)]
    nothing: Added = [([], []) for _ in added[:-1]]
    return [*nothing, (theirs[0], theirs[1])], [*added[:-1], (rest[0], rest[1])]


class Stash:
    """Has the groups, and looks at what is about to be loaded (`specs.add`).

    Args:
        repairs: by module name, what makes a module as if it had been imported just now.
        rereads: by module name, what makes a module read the environment again.
        stale: called with the name of an import and the variables that have changed since it was made.
    """

    def __init__(
        self,
        repairs: Mapping[str, Callable[[Any], None]],
        rereads: Mapping[str, Callable[[Any], None]],
        stale: Callable[[str, list[str]], None],
    ) -> None:
        self._repairs = repairs
        self._rereads = rereads
        self._stale = stale
        self._groups: list[Group] = []
        self._index: dict[str, int] = {}
        self._revealed = 0
        self._shown = 0
        self._cwd = ""
        self._lock = _thread.RLock()

    def begin(self) -> None:
        """The script begins in this process."""
        if self._groups:
            specs.add(self.look)

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
        self._cwd = _cwd()
        self._revealed = self._shown = 0
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
        found = self._groups[self._index[name]].modules[name] if name in self._index else sys.modules.get(name)
        return found if isinstance(found, type(sys)) else None

    def look(self, name: str, spec: Any) -> Any:
        """The spec that was found for a hidden module, with a loader that reveals it. Nothing happens before that."""
        number = self._index.get(name)
        if number is None or number < self._shown:
            return spec
        hidden = self._groups[number].modules[name]
        own: Any = getattr(hidden, "__spec__", None)
        if type(own) is type(spec) and not _alike(own, spec):
            return spec  # the script has arranged for another module of that name
        spec.loader = Revealing(lambda: self.reveal(number), name, hidden, spec.loader)
        return spec

    def reveal(self, last: int) -> None:
        """Puts the groups up to that number where an import would have put them. Other threads wait."""
        with self._lock:
            if last < self._revealed:
                return
            groups = self._groups[self._revealed : last + 1]
            self._revealed = last + 1
            changed = [
                sorted(name for name, was in group.reads.items() if os.environ.get(name) != was) for group in groups
            ]
            for group in groups:
                for parent, child, module in group.attributes:
                    setattr(parent, child, module)
                for name, module in group.modules.items():
                    sys.modules.setdefault(name, module)
                for folder, finder in group.folders.items():
                    sys.path_importer_cache.setdefault(folder, finder)
                set_variables(group.environment)
                for listed, (front, back) in zip(added_to(), group.added, strict=False):
                    listed[:] = [*front, *listed, *back]
                for name in group.modules:
                    if repair := self._repairs.get(name):
                        repair(group.modules[name])
            self._shown = last + 1
            if self._shown == len(self._groups):
                specs.end()
            tell_of_filters()
        moved = _cwd() != self._cwd  # which some note, too
        for group, names in zip(groups, changed, strict=True):
            if names or moved:
                for name in group.modules:
                    if reread := self._rereads.get(name):
                        reread(group.modules[name])
            if names:
                self._stale(group.name, names)

    def keep(self) -> None:
        """At the end of the process: what came from here is not taken apart with the script's own modules.

        It belongs to memory that is shared with other processes, and each page would be copied to be freed.
        """
        for group in self._groups:
            never_free(group.modules)
            for name in group.modules:
                sys.modules.pop(name, None)


class Revealing:
    """The loader of a hidden module. For everything but the loading it is the one that was found.

    The machinery sets nothing but the spec of a module that has been loaded before, and that is set back.
    """

    def __init__(self, reveal: Callable[[], None], name: str, hidden: ModuleType, found: Any) -> None:
        self._reveal = reveal
        self._name = name
        self._hidden = hidden
        self._found = found
        self._own: Any = getattr(hidden, "__spec__", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        """The hidden module; None, by which the machinery makes an empty one, where something odd is hidden."""
        # Threads that import it meanwhile have to find this one, and wait for it.
        return self._hidden if type(self._hidden) is type(sys) and self._own is not None else None

    def exec_module(self, module: ModuleType) -> None:
        """Shows the hidden module, with the spec that it had."""
        self._reveal()
        if self._hidden is module:
            module.__spec__ = self._own
        else:
            sys.modules[self._name] = self._hidden


def set_variables(changes: Mapping[str, str | None]) -> None:
    """Sets these variables, and removes those that are None."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _alike(own: Any, found: Any) -> bool:
    """Whether a module was made from what was found now."""
    if found.loader is None:  # a folder without code
        return list(own.submodule_search_locations or ()) == list(found.submodule_search_locations or ())
    return own.origin == found.origin and type(own.loader) is type(found.loader)
