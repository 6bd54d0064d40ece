"""After how long a wait ends by itself, by the kernel's word (pure)."""

from collections.abc import Sequence

from .evidence import Blocked, Frame, Worker
from .frames import script_frames
from .tracks import Track, is_endless, is_heartbeat

ENDLESS = 20.0
"""Times as long as a worker may be quiet, or has been: a wait that is over sooner is no standstill."""


QUEUES = "/queue.py"
"""Python's own, of threads."""

LIMITS = 3.0
"""Times as long as its time-out, a wait must have lasted: who gives up, or does something else, has by then."""


def sleeps_for_ever(blocked: Blocked, quiet: float) -> bool:
    """Who was `quiet` for so many seconds, or again and again."""
    return is_endless(blocked) or ENDLESS * (blocked.ends or 0.0) <= quiet


def least_wait(worker: Worker, acting: Track, others: Sequence[Track], *, is_main: bool) -> float:
    """Seconds that the wait of the thread that tells where a worker is must have lasted; 0: no time-out is seen;
    infinite: a thread works through the queue that it joins.

    Another thread may keep the lock for which it waits, or be its server, and sleep or wait with a time-out; for how
    long it has, is not known. A time-out of ENDLESS times as long as the worker may be quiet is none: nobody means to
    wait for so long. Who sleeps itself is judged elsewhere.
    """
    if is_main and _is_worked_through(acting, others):
        return float("inf")
    wait, most = acting.blocked, ENDLESS * worker.allowed
    limit = 0.0 if wait.on == "time" else wait.ends or 0.0
    if limit and is_main and wait.call == "futex":
        limit += worker.rested or 0.0  # of that of a lock the kernel tells what is left
    found = [LIMITS * limit] if limit < most else []
    if wait.on == "local socket" or (is_main and wait.on == "lock"):
        left = [each.blocked.ends or 0.0 for each in others if _keeps(each) and each.blocked.on in ("lock", "time")]
        found += [ENDLESS * each for each in left if each < most]
    return max(found, default=0.0)


def _keeps(track: Track) -> bool:
    """It is a thread of the script's."""
    return not track.child and bool(script_frames(track.frames)) and not is_heartbeat(track.frames)


def _is_worked_through(joins: Track, others: Sequence[Track]) -> bool:
    """Whether it waits until a queue of threads is empty, and one comes on while none has nothing to do."""
    if not any(map(_joins, joins.frames)) or any(map(_is_idle, others)):
        return False
    return any(_keeps(each) and (not is_endless(each.blocked) or len({*each.stacks}) > 1) for each in others)


def _joins(call: Frame) -> bool:
    return call.file.endswith(QUEUES) and call.function.endswith("join")


def _is_idle(track: Track) -> bool:
    gets = any(each.file.endswith(QUEUES) and each.function.endswith("get") for each in track.frames)
    return gets and is_endless(track.blocked)
