"""After how long a wait ends by itself, by the kernel's word (pure)."""

from .evidence import Blocked, Worker
from .tracks import Track, is_endless

ENDLESS = 20.0
"""Times as long as a worker may be quiet, or has been: a wait that is over sooner is no standstill."""


def sleeps_for_ever(blocked: Blocked, quiet: float) -> bool:
    """Who was `quiet` for so many seconds, or again and again."""
    return is_endless(blocked) or ENDLESS * (blocked.ends or 0.0) <= quiet


def time_limit(worker: Worker, acting: Track, *, is_main: bool) -> float:
    """Seconds after which the wait of the thread that tells where a worker is ends; 0: it does not.

    A time-out of ENDLESS times as long as the worker may be quiet is none: nobody means to wait for so long. A sleep is
    judged by its length elsewhere.
    """
    wait = acting.blocked
    limit = 0.0 if wait.on == "time" else wait.ends or 0.0
    if limit and is_main and wait.call == "futex":
        limit += worker.rested or 0.0  # of that of a lock the kernel tells what is left
    return limit if limit < ENDLESS * worker.allowed else 0.0
