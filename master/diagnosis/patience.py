"""How long a wait must have lasted before a rank is named for it, where something may end it (pure)."""

from ...rendezvous.base.frozen import replace
from .evidence import DEAD, HALTED, Worker
from .living import Rank
from .places import WAITS_FOR_RANKS, What, rested_in_wait
from .time_limits import sleeps_for_ever

TWICE = 1.7
"""Times as long as it may, from which who gives up and asks again is told apart from who gets something."""

PATIENT = 5.5
"""Times as long as they may, the others must have waited for a rank whose wait may end, or that computes in one place,
before it is named. At the fourth look they have."""

LATE = 10.0
"""As PATIENT, for a rank that computes in native code, or in a process, in few functions of the script; and it must
have had PATIENT times as long of a processor: on a busy machine all takes longer."""

SHARE = 0.3
"""Of the time: a loop of Python code is told sooner, as if it had a processor for so much at least."""

THRICE = 3.1
"""The same, for a rank that waits for its accelerator: an evaluation that prints nothing and has its data there looks
alike from outside, at every look."""

AGAIN = 5.0
"""Seconds between its wake-ups, on average, from which who waits for a server is taken for one that asks again after a
time-out. Where something comes, it comes more often. A shorter time-out looks alike from outside, and is not told."""

BY_THE_KERNEL: frozenset[What] = frozenset(("stopped", "disk", "memory"))
"""What needs no Python stack to be proven. Who is stopped may be resumed."""

_RUNS: frozenset[What] = frozenset(("computes", "computes long", "starved", "gil", "device"))
"""What a rank does that is not quiet."""

_NO_CAUSE: frozenset[What] = frozenset(("collective", "peer", "servers", "idle", "moves"))
"""What a rank does that is never what the others wait for."""


def as_stuck(each: Rank, patience: float) -> Rank:
    late = each.place.stays and patience >= LATE and patience * each.place.share >= PATIENT
    what: What = "sleep" if each.place.what == "sleep" else "computes long"
    return replace(each, place=replace(each.place, what=what, still=True)) if late else each


def own_patience(each: Rank, least: float) -> float:
    """Times as long as a rank may be quiet, it has stood still: before, it came on, and the others waited for that."""
    by_kernel = each.place.what in BY_THE_KERNEL or lost_child(each)
    if by_kernel or each.place.what in _RUNS or each.place.stays or least <= 0:
        return float("inf")
    return each.place.rested / least


def patience_with(each: Rank) -> float:
    """Times as long as they may, the others must have waited for it."""
    lost = lost_child(each)
    if each.place.what == "stopped" or (lost and any(child.state not in DEAD for child in each.worker.children)):
        return PATIENT  # it may be resumed; or another process does the work
    if each.place.what in BY_THE_KERNEL or lost:
        return 0.0
    if not has_stack(each.worker):
        return PATIENT if _is_stuck_program(each) else float("inf")
    if each.place.what == "device":
        return THRICE
    if each.place.sure:
        return 0.0
    least = each.place.least / each.worker.allowed if each.worker.allowed else 0.0
    return max(PATIENT / max(each.place.share, SHARE), least)


def _is_stuck_program(each: Rank) -> bool:
    """A program without Python, a shell, say, that has waited all the time, and so have those that it has started.

    Who loops starts others meanwhile, and is woken up by their ends. What waits for another machine may come on.
    """
    worker = each.worker
    if (
        not worker.native
        or each.place.what not in ("child", "pipe")
        or rested_in_wait(worker) < PATIENT * worker.allowed
    ):
        return False
    waits = [child.blocked for child in worker.children if child.state not in DEAD]
    return all(
        wait.on in ("child", "pipe", "lock", "signal") or (wait.on == "time" and sleeps_for_ever(wait, worker.quiet))
        for wait in waits
    )


def has_stack(worker: Worker) -> bool:
    return any(look.frames or any(each.child for each in look.threads) for look in worker.snapshots)


def lost_child(each: Rank) -> bool:
    """It waits for a process that has ended or is stopped.

    One that has ended and is not collected may be one that nobody waits for; a wait for its end would be over.
    """
    states = [child.state for child in each.worker.children]
    if any(state in HALTED for state in states):
        return each.place.what not in _NO_CAUSE
    dead = [state in DEAD for state in states]
    if not has_stack(each.worker):
        return False
    return any(dead) if each.place.what == "loader" else each.place.what == "pipe" and bool(dead) and all(dead)


def seconds_waited(each: Rank) -> float:
    """Seconds for which it has, in the kernel or in a loop: who waits for ranks, since it has run last."""
    waits = each.place.main and each.place.what in (*WAITS_FOR_RANKS, "either")
    return max(rested_in_wait(each.worker) if waits else each.worker.quiet, each.worker.spins)


def may_come_on(worker: Worker) -> bool:
    """Whether something comes for one that wakes up now and then, as far as is known at the second look."""
    return worker.quiet < TWICE * worker.allowed or worker.quiet < AGAIN * worker.woken
