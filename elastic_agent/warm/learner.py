"""Learns what a script imports by itself, for as long as nothing has happened that would make the imports others.

It looks at every module that is about to be loaded in one worker. An import counts where neither Python's own nor an
installed module makes it while it is itself imported; the script's own modules are a part of the script. Each is told
to the agent as it begins. The learning ends for good where the surroundings change, or where functions or classes of
modules that are loaded have been replaced since the last import ended: what comes after such a thing is the script's
own affair.
"""

from __future__ import annotations

import _thread
import os
import sys

from . import specs
from .frames import pack
from .imports import Revealing
from .step import BETWEEN_FOLDERS, SEPARATOR, step_text

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .imports import Surroundings

LONGEST = 1200
"""Characters of variables that are told, and of folders; a pipe takes no more at once than 4096 bytes."""

MOST = 300
"""Imports that are learnt; a script that makes more by itself has its reasons."""


class Learner:
    """What looks (`specs.add`).

    Args:
        file: written to, a frame for each import; anything that can be opened again and again.
        surroundings: as they were at the start.
        is_local: whether a module or its spec is the script's own.
        per_worker: the variables that differ from worker to worker.
    """

    def __init__(
        self,
        file: str,
        surroundings: Surroundings,
        is_local: Callable[[Any], bool],
        per_worker: frozenset[str] = frozenset(),
    ) -> None:
        self._file = file
        self._per_worker = per_worker
        self._surroundings = surroundings
        self._is_local = is_local
        self._thread = _thread.get_ident()
        self._pid = os.getpid()
        self._told = 0
        self._stopped = False
        self._mains: set[str] = set()
        self._modules: dict[str, Any] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self.accept()

    def look(self, name: str, spec: Any) -> Any:
        """Tells of `spec`, which is about to be loaded, where the script itself wants it."""
        if os.getpid() != self._pid:
            self._stop()  # a child that the script has forked
        if self._stopped or _thread.get_ident() != self._thread:
            return spec
        self._tell_of_main()
        if isinstance(spec.loader, Revealing):
            return spec
        if self._is_nested():
            return spec
        if self._is_local(spec):
            if isinstance(spec.origin, str):
                tell(self._file, "own", spec.origin)
            return spec
        if not hasattr(spec.loader, "exec_module"):
            return spec  # a folder without code, or a loader of the old kind
        written, path = self._surroundings.written(), self._surroundings.moved()
        problem = self._problem(written, path)
        self._told += 1
        if problem:
            self._stop("until", name, problem)
        elif not tell(self._file, "import", step_text(name, written, path)):
            self._stop()
        else:
            spec.loader = _Watched(spec.loader, self._ended)
        return spec

    def _tell_of_main(self) -> None:
        """The main module is the script's own as well, and nobody looks for it as for others.

        That is one that `-m` has found, or the main file of a `launch`. A script's is known to the agent.
        """
        for name in ("__main__", "__mp_main__"):
            main: Any = sys.modules.get(name)
            if main is None or (name == "__main__" and getattr(main, "__spec__", None) is None):
                continue
            file = getattr(main, "__file__", None)
            if isinstance(file, str) and file not in self._mains and self._is_local(main):
                self._mains.add(file)
                tell(self._file, "own", file)

    def _problem(self, written: dict[str, str | None], path: list[str] | None) -> str:
        """Why this import cannot be made ahead, where the script has `written` these variables and has this path."""
        if problem := self._surroundings.change(written, path) or self._replaced():
            return problem
        if path is not None and not _is_plain(path):
            return "the script changes sys.path in a way that cannot be told"
        if varying := sorted(self._per_worker & set(written)):
            return f"the script changes {', '.join(varying)} in its environment, which is not the same for all workers"
        if any(SEPARATOR in (value or "") for value in written.values()) or len(str(written)) > LONGEST:
            return "the script changes its environment in a way that is too long to tell"
        return f"it makes more than {MOST} imports by itself" if self._told >= MOST else ""

    def _is_nested(self) -> bool:
        """Whether an installed module is being loaded, further up in the calls."""
        frame: Any = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            code = frame.f_code
            if code.co_name == "_load_unlocked" and code.co_filename == specs.MACHINERY:
                spec = frame.f_locals.get("spec")
                if spec is not None and not self._is_local(spec):
                    return True
            frame = frame.f_back
        return False

    def accept(self) -> None:
        """An import is over: whatever it did to others is its own, and no act of the script."""
        if self._stopped:
            return
        self._modules = dict(sys.modules)
        # What is set in sys are hooks, to be set; the second is the script itself; in the third we look ourselves.
        others = (sys, sys.modules["__main__"], specs.machinery)
        self._values = {
            name: _values(module)
            for name, module in self._modules.items()
            if not any(module is other for other in others)
        }

    def _ended(self) -> None:
        self._surroundings.accept()
        self.accept()

    def _replaced(self) -> str:
        """What the script has put in the place of something else, in words; empty where nothing."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module and name != "__main__":  # where runpy runs a script
                return f"the script removes or replaces the module {name}"
        for name, module in list(sys.modules.items()):
            if name not in self._modules and not self._is_local(module):
                return f"the script adds the module {name}"
        for name, before in self._values.items():
            now = _values(self._modules[name])
            for key, value in before.items():
                if now.get(key) is not value and not _is_ours(now.get(key)):
                    return f"the script replaces {name}.{key}"
        return ""

    def _stop(self, *words: str) -> None:
        self._stopped, self._modules, self._values = True, {}, {}
        if words:
            tell(self._file, *words)
        specs.remove(self.look)


def _is_plain(path: Sequence[Any]) -> bool:
    separators = SEPARATOR, BETWEEN_FOLDERS
    return (
        len(path) > 0
        and all(type(folder) is str and not any(mark in folder for mark in separators) for folder in path)
        and sum(map(len, path)) <= LONGEST
    )


def tell(file: str, *words: str) -> bool:
    """Writes one frame to the agent; False where that is not possible."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, pack([os.fsencode(word)[:3000] for word in words]))
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


class _Watched:
    """A loader that tells when it is done. The module never sees it."""

    def __init__(self, own: Any, done: Callable[[], None]) -> None:
        self._own = own
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: Any) -> Any:
        """The module that the loader itself would make."""
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Loads the module with its own loader in its place."""
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = self._own
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._own
        self._own.exec_module(module)
        self._done()


specs.as_machinery(_Watched.exec_module)


def _is_ours(value: Any) -> bool:
    """Whether this package's adapters have put it there, which changes no import."""
    return type(value) is type(_is_ours) and str(value.__module__).startswith("elastic_run.adapters.")


_CALLABLE = (type(lambda: None), type(len), type)


def _values(module: Any) -> dict[str, Any]:
    """The functions and classes of a module."""
    values: Any = getattr(module, "__dict__", None)  # something else may be in a module's place
    if not isinstance(values, dict):
        return {}
    # By `type` and not by `isinstance`, which asks the value: some answer with a warning.
    listed: list[tuple[str, Any]] = list(values.items())  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType]
    return {name: value for name, value in listed if issubclass(type(value), _CALLABLE)}
