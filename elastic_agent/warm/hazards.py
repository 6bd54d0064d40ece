"""What makes a process unfit to be forked into workers, each found by looking and told in words.

A fork shares what was opened before it (files, shared memory, semaphores), loses every thread but one, and keeps what
was read or printed before it. A module that does such a thing while it is imported must be imported by each worker.
"""

from __future__ import annotations

import _warnings
import os
import sys

from .native import native_environment

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from typing import Any


class Watch:
    """What the process had before an import, to be compared with what it has after it.

    Args:
        output: the reading end of the pipe that is stdout and stderr meanwhile, not blocking.
        per_worker: the variables that differ from worker to worker.
    """

    def __init__(self, output: int, per_worker: frozenset[str]) -> None:
        self._output = output
        self._per_worker = per_worker
        self._reads: set[str] = set()
        self._names_drawn = _draws_names()
        self._files = _files()
        self._environment = dict(os.environ)
        self._native_agrees = _agrees(native_environment())
        self._cwd = os.getcwd()
        self._shared = _shared()
        self._lists = [list(listed) for listed in added_to()]
        self._random = _random_state()

    def __enter__(self) -> Watch:
        # Who walks over all variables, as some do to find those of their own prefix, is not heard: it names none.
        kind: Any = type(os.environ)
        self._getitem = get = kind.__getitem__
        reads = self._reads

        def getitem(environ: Any, name: Any) -> Any:
            reads.add(os.fsdecode(name))
            return get(environ, name)

        kind.__getitem__ = getitem
        return self

    def __exit__(self, *_: object) -> None:
        kind: Any = type(os.environ)
        kind.__getitem__ = self._getitem

    def found(self) -> str:
        """Why this process must not be forked for workers, in words; empty where it may. To be asked outside."""
        for look in (
            self._printed,
            self._read,
            self._written,
            self._opened,
            self._mapped,
            self._moved,
            self._traced,
            self._named,
            _processes,
            _threads,
        ):
            if found := look():
                return found
        return ""

    def _printed(self) -> str:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]
                stream.flush()
        return in_words(printed(self._output))

    def _read(self) -> str:
        names = sorted(self._reads & self._per_worker)
        return f"reads {', '.join(names)}" if names else ""

    @property
    def written(self) -> dict[str, str | None]:
        """The variables that the import set, and those that it removed (None)."""
        return variables_since(self._environment)

    def _written(self) -> str:
        for name, value in self.written.items():
            if name in self._per_worker or str(os.getpid()) in (value or ""):
                return f"sets {name}, which is not the same for all workers"
        if self._native_agrees and not _agrees(native_environment()):
            return "changes the environment from native code"
        return ""

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

    @property
    def drawn(self) -> bool:
        """Whether the import drew random numbers from the generator that all Python code shares."""
        return self._random is not None and _random_state() != self._random

    def _opened(self) -> str:
        for number, where in _files().items():
            if number not in self._files:
                return f"keeps a file open ({where})"
        return ""

    def _mapped(self) -> str:
        new = _shared() - self._shared
        return f"shares memory ({min(new)})" if new else ""

    def _moved(self) -> str:
        if os.getcwd() != self._cwd:
            return "changes the working directory"
        if self.added is None:
            return "takes something away from Python's lists of folders, finders or warnings"
        return ""

    def _named(self) -> str:
        return "" if self._names_drawn or not _draws_names() else "makes temporary files, which workers would share"

    def _traced(self) -> str:
        return "traces or profiles" if sys.gettrace() is not None or sys.getprofile() is not None else ""


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


def _random_state() -> Any:
    random: Any = sys.modules.get("random")
    return random.getstate() if random else None


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


def variables_since(before: dict[str, str]) -> dict[str, str | None]:
    """The variables that are others than `before`, those that are gone as None."""
    now = dict(os.environ)
    return {name: now.get(name) for name in {**before, **now} if now.get(name) != before.get(name)}


def is_engaged() -> bool:
    """Whether this process has begun something with others: threads, children, connections."""
    # The standard streams are what they were given to be, by whoever has started all this.
    sockets = any(where.startswith("socket:") for number, where in _files().items() if number > 2)
    return sockets or bool(_processes()) or len(os.listdir("/proc/self/task")) > 1


def _threads() -> str:
    if len(os.listdir("/proc/self/task")) == 1:
        return ""
    # Some pools (OpenBLAS's) end before a fork, and begin again where they are needed.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    left = len(os.listdir("/proc/self/task")) - 1
    return f"starts {left} thread{'s' if left > 1 else ''}" if left else ""


def _processes() -> str:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            pids = file.read().split()
    except OSError:
        return ""
    return f"starts a process ({pids[0]})" if pids else ""
