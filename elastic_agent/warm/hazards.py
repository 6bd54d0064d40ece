"""What makes a process unfit to be forked into workers, each found by looking and told in words.

A fork shares what was opened before it (files, shared memory, semaphores), loses every thread but one, and keeps what
was read or printed before it. A module that does such a thing while it is imported must be imported by each worker.
"""

from __future__ import annotations

import _warnings
import os
import posix
import sys

from .native import native_environment
from .specs import as_machinery

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from .declared import Table

    _Variables = dict[Any, Any]
else:
    _Variables = dict


class _Recording(_Variables):
    """A mapping of variables that notes who reads which."""

    def __init__(self, content: dict[Any, Any], reads: set[tuple[str, str]], walks: set[str]) -> None:
        super().__init__(content)
        self._reads = reads
        self._walks = walks
        self.notes = True

    def _noted(self, name: Any, *_: Any) -> None:
        if isinstance(name, bytes) and self.notes:
            self._reads.add((os.fsdecode(name), _reader(sys._getframe(2))))  # pyright: ignore[reportPrivateUsage]

    def _walked(self) -> None:
        if not self.notes:
            return
        frame = _beyond_mappings(sys._getframe(2))  # pyright: ignore[reportPrivateUsage]
        self._walks.add(str(frame.f_globals.get("__name__")) if frame is not None else "native code")

    @staticmethod
    def after(note: Callable[..., None], name: str) -> Any:
        """The dictionary's method of that name, which first notes that it is called."""
        own = getattr(dict, name)

        def method(self: Any, *args: Any) -> Any:
            note(self, *args)
            return own(self, *args)

        return method

    __getitem__ = after(_noted, "__getitem__")
    __contains__ = after(_noted, "__contains__")
    get = after(_noted, "get")
    __iter__ = after(_walked, "__iter__")
    keys = after(_walked, "keys")
    items = after(_walked, "items")
    values = after(_walked, "values")
    copy = after(_walked, "copy")


_MAPPING_MODULES = frozenset(["os", "collections.abc", "_collections_abc", "collections"])
"""Whose code stands between the environment and whoever reads it."""


def _beyond_mappings(frame: Any) -> Any:
    while frame is not None and frame.f_globals.get("__name__") in _MAPPING_MODULES:
        frame = frame.f_back
    return frame


def _reader(frame: Any) -> str:
    """The module that reads for itself, in its own body; empty where a function reads for any other module."""
    frame = _beyond_mappings(frame)
    name = frame.f_globals.get("__name__") if frame is not None else None
    while frame is not None and frame.f_globals.get("__name__") == name:
        if frame.f_code.co_name == "<module>":
            return str(name)
        frame = frame.f_back
    return ""


_GENERATORS: Mapping[str, Callable[[Any], Any]] = {
    "random": lambda module: module.getstate(),
    "numpy.random.mtrand": lambda module: repr(module.get_state(legacy=False)),
    "torch": lambda module: module.default_generator.get_state().tolist(),
}
"""The modules that have random numbers which all code of a process shares, with the state of these."""

_OF_THREADS = 1 << 31 | 1 << 32
"""The signals 32 and 33, by which the C library cancels threads and changes their user; a first thread sets them up."""


class Watch:
    """What the process had before an import, to be compared with what it has after it.

    Args:
        output: the reading end of the pipe that is stdout and stderr meanwhile, not blocking.
        per_worker: the variables that differ from worker to worker.
        table: what an import may do all the same.
    """

    def __init__(self, output: int, per_worker: frozenset[str], table: Table) -> None:
        self._output = output
        self._per_worker = per_worker
        self._table = table
        self._names: set[tuple[str, str]] = set()
        self._walks: set[str] = set()
        self._states = {problem: state() for problem, state in _STATES.items()}
        self._modules = set(sys.modules)
        self._folders = set(sys.path_importer_cache)
        self._files = _files()
        self._environment = dict(os.environ)
        self._native_agrees = _agrees(native_environment())
        self._shared = _shared()
        self._lists = [list(listed) for listed in added_to()]
        self._random = {name: _random_state(name) for name in _GENERATORS if name in sys.modules}

    def __enter__(self) -> Watch:
        environ: Any = os.environ
        self._data: Any = environ._data
        self._posix: dict[bytes, bytes] = posix.environ
        self._recording = _Recording(self._data, self._names, self._walks)
        self._put(self._recording, _Recording(self._posix, self._names, self._walks))
        return self

    def __exit__(self, *_: object) -> None:
        self._recording.notes = False  # nothing else is to be seen of it, and what it holds now is copied
        now: dict[Any, Any] = dict(self._recording.items())
        self._data.clear()
        self._data.update(now)
        self._put(self._data, self._posix)

    @staticmethod
    def _put(data: Any, first: Any) -> None:
        for mapping in (os.environ, os.environb):
            vars(mapping)["_data"] = data
        posix.environ = first

    def look(self, name: str, spec: Any) -> Any:
        """For `specs.add`: notes the state of random numbers that the import itself brings, as soon as they are there.

        Without that, one that seeds them or draws from them is not found.
        """
        if name not in _GENERATORS or spec.loader is None:
            return spec
        loader = spec.loader

        def exec_module(module: Any) -> None:
            del loader.exec_module
            loader.exec_module(module)
            self._random[name] = _random_state(name)

        as_machinery(exec_module)
        loader.exec_module = exec_module
        return spec

    @property
    def modules(self) -> dict[str, Any]:
        """Those that the import brought."""
        return {name: module for name, module in sys.modules.items() if name not in self._modules}

    @property
    def folders(self) -> dict[str, Any]:
        """Where the import looked for modules, and nobody before it: entries of `sys.path_importer_cache`."""
        return {folder: finder for folder, finder in sys.path_importer_cache.items() if folder not in self._folders}

    @property
    def reads(self) -> dict[str, str | None]:
        """The variables that the import read by name, with the values that they had before it.

        Without those that it may read although they differ from worker to worker: these it reads again in each.
        """
        return {name: self._environment.get(name) for name, _ in self._names - self._table.may_read}

    def found(self) -> str:
        """Why this process must not be forked for workers, in words; empty where it may. To be asked outside."""
        return next(filter(None, self._problems()), "")

    def _problems(self) -> Iterator[str]:
        """What is wrong, look after look; an empty text where a look finds nothing."""
        may_draw = any(map(self._table.may_draw, self.modules))
        if not may_draw and any(_random_state(name) != state for name, state in self._random.items()):
            yield "draws random numbers"
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]
                stream.flush()
        yield in_words(printed(self._output))
        if names := sorted(self.reads.keys() & self._per_worker):
            yield f"reads {', '.join(names)}"
        for module in sorted(self._walks - self._table.may_walk):
            yield f"reads all environment variables (in {module}), and workers have some that differ"
        for name, value in self.written.items():
            if name in self._per_worker or str(os.getpid()) in (value or ""):
                yield f"sets {name}, which is not the same for all workers"
        if self._native_agrees and not _agrees(native_environment()):
            yield "changes the environment from native code"
        if sys.gettrace() is not None or sys.getprofile() is not None:
            yield "traces or profiles"
        yield from (problem for problem, state in _STATES.items() if state() != self._states[problem])
        yield from (f"keeps a file open ({where})" for number, where in _files().items() if number not in self._files)
        if shared := _shared() - self._shared:
            yield f"shares memory ({min(shared)})"
        if self.added is None:
            yield "removes an entry from sys.path, Python's finders or warning filters"
        yield _processes()
        yield self._threads()

    @property
    def written(self) -> dict[str, str | None]:
        """The variables that the import set, and those that it removed (None)."""
        before, now = self._environment, dict(os.environ)
        return {name: now.get(name) for name in {**before, **now} if now.get(name) != before.get(name)}

    @property
    def added(self) -> list[tuple[list[Any], list[Any]]] | None:
        """What the import put before and behind each of the lists of `added_to`; None where it did something else."""
        found: list[tuple[list[Any], list[Any]]] = []
        for before, now in zip(self._lists, added_to(), strict=False):
            for at in range(len(now) - len(before) + 1):
                if all(one is other for one, other in zip(before, now[at:], strict=False)):
                    found.append((now[:at], now[at + len(before) :]))
                    break
            else:
                return None
        return found

    def _threads(self) -> str:
        if not self._others():
            return ""
        # Some pools (OpenBLAS's) end before a fork, and begin again where they are needed.
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        left = self._others()
        return f"starts {left} thread{'s' if left > 1 else ''}" if left else ""

    def _others(self) -> int:
        """The threads beside this one, but for those that may stay."""
        names: list[str] = []
        for number in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{number}/comm") as file:
                    names.append(file.read().rstrip("\n"))
            except OSError:
                continue  # it has ended
        return len([name for name in names if name not in self._table.threads]) - 1


def printed(output: int) -> bytes:
    """One portion of what is in that pipe, which is read without waiting; empty where nothing is."""
    try:
        return os.read(output, 65536)
    except BlockingIOError:
        return b""


def in_words(data: bytes) -> str:
    """What it means that an import has printed this; empty where that is nothing."""
    line = data.decode(errors="replace").strip().partition("\n")[0]
    return f"prints ({line[:80]!r})" if data else ""


def added_to() -> list[list[Any]]:
    """The lists that imports add to: where Python looks for modules and how, and what it warns of."""
    warnings: Any = sys.modules.get("warnings", _warnings)
    return [sys.path, sys.meta_path, sys.path_hooks, warnings.filters]


def tell_of_filters() -> None:
    """Has Python look at the filters of warnings anew: they were changed in their list."""
    warnings: Any = sys.modules.get("warnings", _warnings)
    # Without any of these, warnings that were seen are looked up as before.
    if mutated := getattr(warnings, "_filters_mutated", None):
        mutated()
    elif mutated := getattr(warnings, "_filters_mutated_lock_held", None):  # of `_warnings`, from Python 3.14 on
        warnings._acquire_lock()
        try:
            mutated()
        finally:
            warnings._release_lock()


def _random_state(name: str) -> Any:
    """Of one of `_GENERATORS`; None where a module of that name has no such thing."""
    try:
        return _GENERATORS[name](sys.modules[name])
    except (AttributeError, KeyError):
        return None


def _draws_names() -> bool:
    tempfile: Any = sys.modules.get("tempfile")
    return getattr(tempfile, "_name_sequence", None) is not None


def _agrees(native: list[bytes]) -> bool:
    return native == sorted(os.fsencode(name) + b"=" + os.fsencode(value) for name, value in dict(os.environ).items())


def _files() -> dict[int, str]:
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing's own
    return found


def _shared() -> set[str]:
    """The files (or kinds) of memory that would be shared with a fork, and can be written."""
    found: set[str] = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if "w" in fields[1] and "s" in fields[1]:
                found.add(fields[5].strip() if len(fields) > 5 else "anonymous")
    return found


def _signals() -> tuple[int, ...]:
    """Which signals this process ignores and catches, also in native code, but for those of the C library's threads."""
    with open("/proc/self/status", "rb") as file:
        return tuple(
            int(line.split()[1], 16) & ~_OF_THREADS for line in file if line.startswith((b"SigIgn:", b"SigCgt:"))
        )


def _processes() -> str:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            pids = file.read().split()
    except OSError:
        return ""
    return f"starts a process ({pids[0]})" if pids else ""


_STATES: Mapping[str, Callable[[], object]] = {
    "changes how signals are handled": _signals,
    "changes the working directory": os.getcwd,
    "creates temporary files, which workers would share": _draws_names,
}
"""What an import may not change, by what is said of one that has."""
