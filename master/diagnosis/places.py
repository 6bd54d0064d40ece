"""Where a worker is: what its main thread does, by the kernel's evidence and its Python stack (pure).

The kernel comes first: it cannot be mistaken about a stopped process or a read that does not return. The stack tells
what a wait is for, where the kernel only says that there is one. Which modules of frameworks are waits for other ranks,
and which are waits for data, is said here by parts of their paths.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from .evidence import Frame, Snapshot, Socket, Worker

What = Literal[
    "stopped",
    "starved",
    "gil",
    "disk",
    "computes",
    "moves",
    "device",
    "collective",
    "peer",
    "idle",
    "server",
    "loader",
    "pipe",
    "file",
    "file lock",
    "lock",
    "sleep",
    "child",
    "unknown",
]
"""What the main thread does."""

WAITS_FOR_RANKS: frozenset[What] = frozenset(("collective", "peer"))

COLLECTIVES = (
    "elastic_run/adapters/",  # for a rank, for data that others have, for the other ranks' state
    "/torch/distributed/",
    "/torch/nn/parallel/distributed",
    "/torch/autograd/",  # a backward pass that waits for its reductions; one that computes is busy
    "/horovod/",
    "/mpi4py/",
    "/jax/experimental/multihost_utils",
    "/jax/_src/distributed",
    "/tensorflow/python/distribute/",
    "/deepspeed/comm/",
    "/xgboost/collective",
)
DEVICES = ("/torch/cuda/",)
HELD = ("/elastic_agent/warm/",)
LOADERS = (
    "/torch/utils/data/",
    "/multiprocessing/queues.py",
    "/multiprocessing/pool.py",
    "/multiprocessing/connection.py",
    "/concurrent/futures/",
    "/tensorflow/python/data/",
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|^<|/elastic_agent/warm/|/_elastic_run")

_WRAPS = re.compile(r"<locals>|wrapper|decorate|^_fn$|^__(call|enter)__$")

BUSY = 0.3
"""Of one processor: who uses more is computing."""

IDLE = 0.05
"""Of one processor: who uses less may be waiting."""

READY, STARVED = 0.8, 0.02
"""Of the time that a thread is ready to run, and of one processor that it gets: whose processor is taken. On a
machine that is merely busy, everybody gets a share."""

LOOKS = 10
"""Stacks that must be alike, where a worker computes."""

WORKED = 0.1
"""Seconds of processor that it must have used meanwhile: who got none cannot have come on."""

SPOTS = 2
"""In so many functions may one be that comes not on."""

HELD_LOOKS = 0.8
"""Of the looks, those at which it must have the interpreter's lock."""

WOKEN = 2
"""Times at most that who waits for a server has woken up while it was quiet: else something came, or it asked again."""

SYNC = 10.0
"""Times as long as another wait, one for a disk may last."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one worker is.

    Attributes:
        what: see there.
        where: in words: the line of the script, and what it calls or waits for there.
        peers: ranks whose connections it waits for.
        still: nothing has moved between the first look and the last.
        spot: what is equal for workers that are in the same place, as far as stacks tell; empty without stacks.
    """

    what: What
    where: str
    peers: frozenset[int]
    still: bool
    spot: tuple[tuple[str, int, str], ...]


Ends = Mapping[tuple[str, str], int]
"""The local end of each worker's connections, with its network where it is a loopback address: whose it is."""


def end(network: str, address: str) -> tuple[str, str]:
    """How an address is looked up: a loopback address is one of a network alone."""
    return (network if address.startswith(("127.", "[::1]", "[::ffff:127.")) else "", address)


def place(network: str, worker: Worker, ends: Ends, bar: float = 0.0) -> Place:
    """Where `worker` is.

    Args:
        network: in which it is.
        ends: of all workers of the job.
        bar: seconds for which it must have been quiet to be taken for one that stands still.
    """
    first, last = worker.snapshots[0], worker.snapshots[-1]
    span = max(last.at - first.at, 1e-3)
    busy = (last.cpu - first.cpu) / span
    delayed = (last.delayed - first.delayed) / span
    children = (last.child_cpu - first.child_cpu) / span
    stacks = [each.frames for each in worker.snapshots if each.frames]
    frames = stacks[-1] if stacks else ()
    moved = last.output > first.output or last.moved > first.moved
    quiet = busy + delayed < IDLE and children < IDLE and not moved and worker.quiet >= bar
    peers = frozenset(
        rank
        for each in worker.blocked.sockets
        if (rank := ends.get(end(network, each.remote))) is not None and rank != worker.rank
    )
    what = _what(worker, frames, peers, busy, delayed, children)
    if what == "computes" and 0 < worker.spins >= bar and _is_in_one_native_call(worker.snapshots):
        # In a collective of a library that waits in this way, too, it may come on.
        what, still = ("collective", False) if is_in(frames, COLLECTIVES) else ("device", True)
    elif what == "computes":
        # In one function, and one that it calls, at each of many looks: an evaluation is in many.
        spots = len({_functions(each) for each in stacks})
        alike = len(stacks) >= LOOKS and spots <= SPOTS and _loops_in_python(worker.snapshots)
        still = alike and busy * span >= WORKED and not moved and not children
    elif what in ("stopped", "starved"):
        still = True
    elif what in ("disk", "file") and worker.blocked.call in ("fsync", "fdatasync"):
        still = quiet and worker.quiet >= SYNC * bar  # so much to write may take its time
    elif what in ("server", "pipe", "device"):
        # What comes in small parts, with pauses that are longer than all looks together, wakes it up now and then; so
        # does a time-out after which it asks again. See `wakes_up`.
        still = quiet and last.switches <= first.switches + 1
    else:
        still = quiet and len({_functions(each) for each in stacks}) <= 1
    return Place(what, _where(worker, frames, what), peers, still, spot_of(frames))


def wakes_up(what: What, worker: Worker) -> bool:
    """It waits for what is to come from outside, and woke up meanwhile: something came, or it asked again."""
    return what in ("server", "pipe") and worker.woken > WOKEN


def _what(
    worker: Worker,
    frames: Sequence[Frame],
    peers: frozenset[int],
    busy: float,
    delayed: float,
    children: float,
) -> What:
    states = [each.state for each in worker.snapshots]
    blocked = worker.blocked
    if all(state in ("T", "t") for state in states) or any("freez" in each.channel for each in worker.snapshots[-1:]):
        return "stopped"
    # The kernel counts the time for which a thread was ready only when it gets a processor at last.
    ready = states.count("R") / len(states)
    if max(delayed, ready) >= READY and busy < STARVED:
        return "starved"
    if _keeps_gil(worker.snapshots, busy + delayed):
        return "gil"
    if busy + delayed >= BUSY or ready >= READY:
        return "computes"
    if all(state == "D" for state in states):
        return "disk"
    if frames and is_in(frames[:1], HELD):
        return "collective"  # before its own first line, until rank 0 is there
    if frames and is_in(frames[:1], DEVICES):
        return "device"
    if frames and is_in(frames, COLLECTIVES) and not is_in(frames[:3], LOADERS):
        return "collective"
    if children >= IDLE:
        return "moves"
    if peers:
        return "peer"
    if frames and is_in(frames, LOADERS):
        return "loader"
    if blocked.on == "local socket" and is_in(frames[:6], ("/asyncio/",)):
        return "lock"  # an event loop without events
    match blocked.on:
        case "listener":
            return "idle"
        case "socket" | "local socket":
            return "server"
        case "pipe" | "terminal":
            return "pipe"
        case "file":
            return "file lock" if blocked.call in ("flock", "fcntl") else "file"
        case "time":
            return "sleep"
        case "child":
            return "child"
        case "lock":
            return "lock"
        case _:
            return "unknown"


Work = Literal["computes", "data", "network"]


@dataclass(frozen=True, slots=True)
class Works:
    """How a worker shares its time.

    Attributes:
        share: of the looks at which it did not wait for other ranks.
        most: what it did at most of these.
        where: in which line of the script, at most of these.
        delayed: of the time, for which its main thread had no processor though it was ready.
        switches: how often its main thread has stopped running.
        longest: the share of the looks in the longest stretch in which it did not.
        cpu: processors that it used.
    """

    share: float
    most: Work
    where: str
    delayed: float
    switches: int
    longest: float
    cpu: float


def works(network: str, worker: Worker, ends: Ends) -> Works:
    """How `worker` shares its time between its own work and waiting for others, by long looks."""
    first, last = worker.snapshots[0], worker.snapshots[-1]
    busy = [each for each in worker.snapshots if not _waits_for_ranks(network, worker.rank, each, ends)]
    kinds = Counter[Work](_work(each) for each in busy)
    spots = Counter(
        f"{short(own[0].file)}:{own[0].line} in {own[0].function}"
        for each in busy
        if (own := script_frames(each.frames))
    )
    span = max(last.at - first.at, 1e-3)
    stretches = [len(tuple(same)) - 1 for _, same in groupby(worker.snapshots, lambda each: each.switches)]
    return Works(
        len(busy) / len(worker.snapshots),
        kinds.most_common(1)[0][0] if kinds else "computes",
        spots.most_common(1)[0][0] if spots else "",
        (last.delayed - first.delayed) / span,
        last.switches - first.switches,
        max(stretches) / max(len(worker.snapshots) - 1, 1),
        (last.cpu - first.cpu) / span,
    )


def _waits_for_ranks(network: str, rank: int, look: Snapshot, ends: Ends) -> bool:
    if look.state == "R":
        return False
    if any(ends.get(end(network, each.remote), rank) != rank for each in look.blocked.sockets):
        return True
    return is_in(look.frames, (*COLLECTIVES, *DEVICES)) and not is_in(look.frames[:3], LOADERS)


def _work(look: Snapshot) -> Work:
    if is_in(look.frames, LOADERS) or look.state == "D" or look.blocked.on in ("pipe", "file"):
        return "data"
    if look.state != "R" and look.blocked.on in ("socket", "local socket"):
        return "network"
    return "computes"


def _keeps_gil(snapshots: Sequence[Snapshot], busy: float) -> bool:
    """A thread waits in the kernel, or computes in native code while others want to run, and keeps the lock."""
    seen = [each for each in snapshots if each.holds_gil is not None]
    if not seen or busy >= BUSY:
        return False
    return all(each.holds_gil or each.gil_holder for each in seen) and len(seen) > 1


def _loops_in_python(snapshots: Sequence[Snapshot]) -> bool:
    """A loop of Python code has the interpreter's lock; who computes in a library gives it back meanwhile."""
    seen = [each.holds_gil for each in snapshots if each.frames]
    return seen.count(True) >= HELD_LOOKS * len(seen)


def _is_in_one_native_call(snapshots: Sequence[Snapshot]) -> bool:
    """It runs there at each of many looks, without the interpreter's lock."""
    seen = [each for each in snapshots if each.frames]
    return (
        len(seen) >= LOOKS
        and len({each.frames for each in seen}) == 1
        and not any(each.holds_gil for each in seen)
        and all(each.state == "R" for each in snapshots)
    )


def is_in(frames: Sequence[Frame], parts: Sequence[str]) -> bool:
    """One of the calls is in a file whose path has one of these parts."""
    return any(part in frame.file for frame in frames for part in parts)


def _functions(frames: Sequence[Frame]) -> tuple[tuple[str, str], ...]:
    return tuple((frame.file, frame.function) for frame in frames)


def script_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Those of the user's own files, the innermost first."""
    return [frame for frame in frames if not _LIBRARY.search(frame.file)]


def spot_of(frames: Sequence[Frame]) -> tuple[tuple[str, int, str], ...]:
    """The calls in the user's files, and the first that they make into a library."""
    own = script_frames(frames)
    if not own:
        return tuple((frame.file, frame.line, frame.function) for frame in frames[-3:])
    spot = [(frame.file, frame.line, frame.function) for frame in own]
    if called := _called(frames, own[0]):  # in which line of it a rank is, may differ
        spot.insert(0, (called.file, 0, called.function))
    return tuple(spot)


def _called(frames: Sequence[Frame], own: Frame) -> Frame | None:
    """The function of a library that the script is in; what wraps it says nothing."""
    inner = frames[: frames.index(own)][::-1]
    return next((each for each in inner if not _WRAPS.search(each.function)), inner[0] if inner else None)


def _where(worker: Worker, frames: Sequence[Frame], what: What) -> str:
    parts = list[str]()
    own = script_frames(frames)
    if own:
        if called := _called(frames, own[0]):
            parts.append(f"{called.function}()")
        parts.append(f"{short(own[0].file)}:{own[0].line} in {own[0].function}")
    elif frames:
        parts.append(f"{short(frames[0].file)}:{frames[0].line} in {frames[0].function}")
    blocked = worker.blocked
    if blocked.target and what not in ("collective", "peer", "computes", "device"):
        parts.append(f"{blocked.call} on {blocked.target}" if blocked.call else blocked.target)
    elif not frames and blocked.call:
        parts.append(f"in the system call {blocked.call}")
    return ", ".join(parts)


def short(path: str) -> str:
    """The last part of a path and the folder that it is in, where that says more."""
    return path.rpartition("/")[2]


def ends_of(workers: Sequence[tuple[str, Worker]]) -> dict[tuple[str, str], int]:
    """See `Ends`; `workers` with their networks."""
    return {
        end(network, connection.local): worker.rank
        for network, worker in workers
        for connection in worker.connections
        if not connection.listens
    }


def stuck(worker: Worker) -> list[Socket]:
    """Connections whose data does not arrive."""
    return [each for each in worker.connections if each.unsent and each.retries >= 2]
