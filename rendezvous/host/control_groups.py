"""The control groups of a process, of either version, and their memory."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

TOP, PROC = Path("/sys/fs/cgroup"), Path("/proc")


def folders_of(pid: int | str, controller: str, top: Path = TOP, proc: Path = PROC) -> Iterator[Path]:
    """The folders of a process's control group, of the first version that of `controller`, and those above it."""
    with contextlib.suppress(OSError):
        text = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        for name, path in re.findall(rf"^(?:0:|\d+:(?:\S*,)?({controller})(?:,\S*)?):(.*)", text, re.MULTILINE):
            highest = top / name
            at = highest / path.lstrip("/")
            while at.is_relative_to(highest):
                yield at
                at = at.parent


def memory_limit(folder: Path) -> int:
    """Bytes that a control group may have. Raises OSError, or ValueError where it may have all."""
    return _number(folder, "memory.max", "memory.limit_in_bytes")


def used_memory(folder: Path) -> int:
    """Bytes that a control group has, without what the kernel can take back. Raises OSError, ValueError."""
    told = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    files = (told.get(f"total_{each}", told.get(each, "0")) for each in ("inactive_file", "active_file"))
    return max(0, _number(folder, "memory.current", "memory.usage_in_bytes") - sum(map(int, files)))


def usable_memory(top: Path = TOP, proc: Path = PROC) -> int:
    """Bytes that this process may have: the machine's, or those of the narrowest of its control groups."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in folders_of("self", "memory", top, proc):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, memory_limit(folder))
    return total


def free_memory(top: Path = TOP, proc: Path = PROC) -> int:
    """Bytes that this process may still use: the least of what the machine and each control group around it have left.

    Raises OSError, or ValueError where /proc/meminfo is none.
    """
    fields = dict(line.split(":", 1) for line in (proc / "meminfo").read_text(encoding="ascii").splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    for folder in folders_of("self", "memory", top, proc):
        with contextlib.suppress(OSError, ValueError):
            free = min(free, memory_limit(folder) - used_memory(folder))
    return max(0, free)


def _number(folder: Path, name: str, before: str) -> int:
    """`before`: its name in the first version."""
    path = folder / name
    return int((path if path.exists() else folder / before).read_text(encoding="ascii"))
