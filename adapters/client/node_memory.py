"""How much memory a node has left, its control groups included."""

import contextlib
from pathlib import Path


def free_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may still use: the least of what the machine and each control group around it have left.

    Raises OSError, or ValueError where /proc/meminfo is none.
    """
    fields = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    with contextlib.suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                root, names = groups, ("memory.max", "memory.current", "")
            elif "memory" in controllers.split(","):
                root, names = groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            else:
                continue
            here = Path(group)
            for each in (here, *here.parents):
                with contextlib.suppress(OSError, ValueError, LookupError):  # none there, or "max"
                    free = min(free, _left_in(root / str(each).lstrip("/"), *names))
    return max(0, free)


def _left_in(group: Path, limit: str, used: str, prefix: str) -> int:
    """Raises OSError, ValueError, LookupError. What is cached of files is given up for memory, so it is free."""
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = sum(int(stat[f"{prefix}{kind}_file"]) for kind in ("inactive", "active"))
    return int((group / limit).read_text()) - int((group / used).read_text()) + cached
