"""What the kernel tells of the processes that a worker has started."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ...master.diagnosis.evidence import MAX_CHILDREN, Child
from ..processes import guardian
from . import kernel


def children(pid: int) -> tuple[Child, ...]:
    """Its descendants, the first MAX_CHILDREN."""
    found = list[Child]()
    with contextlib.suppress(OSError):
        for each in guardian.descendants(pid):
            name = ""
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{each.pid}/comm").read_text(errors="replace").strip()
            waits = kernel.channel(each.pid), kernel.blocked(each.pid, {})
            ends = kernel.handled_signals(each.pid), kernel.has_timers(each.pid)
            found.append(Child(each.pid, name[:100], each.state, each.used, *waits, *ends))
            if len(found) >= MAX_CHILDREN:
                break
    return tuple(found)


MAX_PROCESSES = 4
"""Of one worker, whose stacks are taken."""


def python_processes(pid: int) -> tuple[int, ...]:
    """Its descendants that run Python, the first MAX_PROCESSES."""
    found = list[int]()
    with contextlib.suppress(OSError):
        for each in guardian.descendants(pid):
            with contextlib.suppress(OSError):
                if _runs_python(each.pid):
                    found.append(each.pid)
            if len(found) >= MAX_PROCESSES:
                break
    return tuple(found)


def is_native(pid: int) -> bool:
    """Whether neither `pid` nor a process that it has started runs Python; not where that is not known."""
    with contextlib.suppress(OSError):
        return not any(_runs_python(each) for each in (pid, *(each.pid for each in guardian.descendants(pid))))
    return False


def _runs_python(pid: int) -> bool:
    """Raises OSError where that is not known."""
    return "python" in Path(f"/proc/{pid}/exe").readlink().name


def processes_apart(pid: int, those: Iterable[int]) -> frozenset[int]:
    """Which of `those` descendants of `pid` have no connection but with it and its others, and no accelerator.

    A connection that it has inherited is its parent's.
    """
    found = kernel.connections([pid, *(each.pid for each in guardian.descendants(pid))])
    inner = {each.local for sockets in found.values() for each in sockets.values()}
    return frozenset(
        each
        for each in those
        if each in found
        and os.access(f"/proc/{each}/fd", os.R_OK)
        and not kernel.uses_accelerator(each)
        and all(
            socket.listens or socket.remote in inner for inode, socket in found[each].items() if inode not in found[pid]
        )
    )


def child_cpu(pid: int) -> float:
    """Seconds of processor that its living descendants have used."""
    with contextlib.suppress(OSError):
        return sum(each.used for each in guardian.descendants(pid))
    return 0.0
