"""Evidence that the kernel killed for lack of memory: it counts such kills, and nobody else tells."""

import asyncio
import contextlib
from collections import deque
from pathlib import Path

LOOKS = 3
"""The last looks at the machine's count; a kill before them is none of a worker that has only just ended."""

LOOK_SECONDS = 1.0
"""Between two of them."""


class OomKills:
    """The processes that the kernel has killed for lack of memory since this was made.

    Attributes:
        own: those of this process's control group are counted; else, where it has no count, all of the machine's,
            which proves nothing about a worker.
    """

    def __init__(self) -> None:
        self._before, self.own = count_kills()
        self._elsewhere = deque((count_machine_kills(),), LOOKS)
        self._named = 0
        self._next: asyncio.TimerHandle | None = None

    def look_on(self) -> None:
        """Looks again and again, at the same pace, until `close`."""
        if self._next is not None:
            self._elsewhere.append(max(self._elsewhere[-1], count_machine_kills()))  # 0 where it cannot be read now
        self._next = asyncio.get_running_loop().call_later(LOOK_SECONDS, self.look_on)

    def close(self) -> None:
        """Looks no more."""
        if self._next is not None:
            self._next.cancel()

    @property
    def rise(self) -> int:
        """How many there were; where only all of the machine are counted, just now."""
        count, own = count_kills()
        if own != self.own:
            return 0
        return max(0, count - self._before) if own else self.elsewhere

    @property
    def elsewhere(self) -> int:
        """How many there were on the machine just now: a worker may have been in a control group of its own.

        An earlier one was another program's.
        """
        return max(0, count_machine_kills() - self._elsewhere[0])

    def name(self) -> int:
        """A worker that died by SIGKILL may be one of them: then the rise. One kill explains one worker's end."""
        rise = self.rise
        if rise <= self._named:
            return 0
        self._named += 1
        return rise


def count_kills() -> tuple[int, bool]:
    """How many the kernel has counted, and whether they are of this control group. Only differences mean anything."""
    for path in _own_counters():
        with contextlib.suppress(OSError, ValueError, LookupError):
            return _count(path), True
    return count_machine_kills(), False


def count_machine_kills() -> int:
    """The same of all control groups; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        return _count(Path("/proc/vmstat"))
    return 0


def _count(path: Path) -> int:
    """Raises LookupError where there is none."""
    fields = dict(line.split() for line in path.read_text().splitlines())
    return int(fields["oom_kill"])


def _own_counters() -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                found.append(Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                memory = Path("/sys/fs/cgroup/memory")
                # Inside a container the group's own folder is often mounted at the top.
                found += [memory / group.lstrip("/") / "memory.oom_control", memory / "memory.oom_control"]
    return found
