"""Evidence that the kernel killed for lack of memory: it counts such kills, and nobody else tells."""

import contextlib
from pathlib import Path


class OomKills:
    """The processes that the kernel has killed for lack of memory since this was made.

    Attributes:
        own: only those of this process's control group are counted; else, where it has no count, all of the machine's,
            which proves nothing about a worker.
    """

    def __init__(self) -> None:
        self._before, self.own = count_kills()
        self._named = 0

    @property
    def rise(self) -> int:
        """How many there were."""
        count, own = count_kills()
        return max(0, count - self._before) if own == self.own else 0

    def name(self) -> int:
        """A worker that died by SIGKILL may be one of them: then the rise. One kill explains one worker's end."""
        rise = self.rise
        if rise <= self._named:
            return 0
        self._named += 1
        return rise


def count_kills() -> tuple[int, bool]:
    """How many the kernel has counted, and whether they are of this control group. Only differences mean anything."""
    for path, own in [*((path, True) for path in _own_counters()), (Path("/proc/vmstat"), False)]:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number), own
    return 0, False


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
