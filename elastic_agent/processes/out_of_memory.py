"""Evidence that the kernel killed for lack of memory: it counts such kills, and nobody else tells."""

import contextlib
from pathlib import Path


def oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory: in this control group, or all where it has no count.

    Only the difference between two calls means anything.
    """
    for path in _oom_counters():
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0


def _oom_counters() -> list[Path]:
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
    return [*found, Path("/proc/vmstat")]
