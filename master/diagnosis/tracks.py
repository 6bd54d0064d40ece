"""The threads of a worker, and of its processes, over all looks at them (pure)."""

from collections.abc import Sequence

from ...rendezvous.base.frozen import dataclass
from .evidence import HALTED, Blocked, Frame, Worker

HEARTBEATS = (
    ("/tqdm/_monitor", ""),
    ("/multiprocessing/pool.py", "_handle_workers"),
    ("/multiprocessing/resource_tracker.py", "main"),
)
"""Threads and processes of libraries that end nobody's wait, whatever they do: by their file and function. The thread
that looks after a pool's processes never rests while a result is not fetched."""

READY, STARVED = 0.8, 0.02
"""Of the time that a thread is ready to run, and of one processor that it gets: whose processor is taken. On a
machine that is merely busy, everybody gets a share."""

DAY = 86400.0
"""Seconds: a wait that ends by itself no sooner is one that does not end."""


@dataclass(frozen=True, slots=True)
class Track:
    """One thread, over all looks at it.

    Attributes:
        busy: of one processor, what it has used, or was ready to use.
        stacks: those that were taken.
        child: it is of a process that the worker has started.
        apart: see `ThreadState`.
    """

    states: tuple[str, ...]
    busy: float
    blocked: Blocked
    stacks: tuple[tuple[Frame, ...], ...]
    child: bool = False
    apart: bool = False

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.stacks[-1] if self.stacks else ()


def tracks_of(worker: Worker) -> tuple[Track, list[Track]]:
    """The main thread's, and those of the other threads."""
    looks = worker.snapshots
    first, last = looks[0], looks[-1]
    span = max(last.at - first.at, 1e-3)
    own = (last.main_cpu + last.delayed - first.main_cpu - first.delayed) / span
    states = tuple(each.state for each in looks)
    if states.count("R") >= READY * len(states):
        own = max(own, 1.0)
    main = Track(states, own, last.blocked, tuple(each.frames for each in looks if each.frames))
    taken = [each for each in looks if each.threads]
    if not taken:
        return main, []
    before = {each.number: each for each in taken[0].threads}
    span = max(taken[-1].at - taken[0].at, 1e-3)
    others = list[Track]()
    for now in taken[-1].threads:
        then = before.get(now.number, now)
        stacks = tuple(each for each in (then.frames, now.frames) if each)
        states, used = (then.state, now.state), (now.cpu - then.cpu) / span
        others.append(Track(states, used, now.blocked, stacks, now.child, now.apart))
    return main, others


def is_heartbeat(frames: Sequence[Frame]) -> bool:
    return any(file in each.file and each.function.endswith(name) for each in frames for file, name in HEARTBEATS)


def is_halted(track: Track) -> bool:
    return all(state in HALTED for state in track.states)


def is_endless(blocked: Blocked) -> bool:
    return blocked.ends is None or blocked.ends >= DAY
