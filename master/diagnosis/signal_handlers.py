"""Whether a signal or a timer may end a wait, by the handlers and the timers that a process has (pure).

A handler may set an event, release a lock, end a process or raise an exception, and so may what a timer calls in a
thread of native code. The kernel tells only that there is one.
"""

import signal
from collections.abc import Sequence

from .evidence import DEAD, Worker

OF_ALL = frozenset(
    (
        signal.SIGINT,  # Python's own
        signal.SIGILL,  # and faulthandler's
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGSEGV,
        32,  # and the C library's for threads
        33,
    )
)
"""Signals whose handlers tell nothing of the script."""


def may_end_wait(worker: Worker) -> bool:
    """Whether a handler of the worker may end a wait in it: that of its children's ends only while it has some."""
    return worker.timers or _handles(worker.signals, children=any(child.state not in DEAD for child in worker.children))


def may_end_child_wait(worker: Worker) -> bool:
    """The same of its processes."""
    living = [child for child in worker.children if child.state not in DEAD]
    return any(child.timers or _handles(child.signals, children=len(living) > 1) for child in living)


def _handles(signals: Sequence[int], *, children: bool) -> bool:
    return not OF_ALL.union(() if children else (signal.SIGCHLD,)).issuperset(signals)
