"""Where a worker is: what it does, by the kernel's evidence and its Python stacks (pure).

The kernel comes first: it cannot be mistaken about a stopped process or a read that does not return. The stack tells
what a wait is for, where the kernel only says that there is one. What decides is the innermost call that is not the
standard library's: a stack that passes through a framework on its way to the user's own code is the user's. Which
modules of frameworks are waits for other ranks, and which are waits for data, is said here by parts of their paths.

A main thread often waits for another thread or a process, which does the work: then the worker's place is theirs.
"""

from collections.abc import Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from . import signal_handlers
from .calls import called
from .evidence import HALTED, MAX_THREADS, SPAWNS, Blocked, Child, Ends, Frame, Snapshot, Worker, end
from .frames import decides, deciding, is_in, script_frames, spot_of, waits_in_native_code
from .remote_calls import runs_for_others, serving, waits_for_remote
from .time_limits import ENDLESS, least_wait
from .tracks import READY, STARVED, Track, is_endless, is_halted, is_heartbeat, tracks_of

What = Literal[
    "stopped",
    "starved",
    "gil",
    "disk",
    "computes",
    "computes long",
    "moves",
    "device",
    "collective",
    "servers",
    "peer",
    "idle",
    "server",
    "loader",
    "pipe",
    "file",
    "file lock",
    "lock",
    "either",
    "memory",
    "sleep",
    "signal",
    "child",
    "unknown",
]
"""What it does. servers: it waits for parameter servers. either: a call of native code in which no Python call is seen
waits, for another rank or for a lock."""

WAITS_FOR_RANKS: frozenset[What] = frozenset(("collective", "peer"))

LIBRARIES = (
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
COLLECTIVES = (*LIBRARIES, "elastic_run/adapters/")  # for a rank, for data that others have, for the others' state
SERVERS = ("elastic_run/adapters/servers/",)
STEP_CLOCK = ("/servers/step_clock.py",)  # there it waits for slower ranks
DEVICES = ("/torch/cuda/",)
HELD = ("/elastic_agent/warm/",)
LOADERS = ("/torch/utils/data/", "/tensorflow/python/data/")
PROCESSES = ("/multiprocessing/", "/concurrent/futures/", "/subprocess.py")
"""Of the standard library, what waits for a process that was started."""

MAX_WHERE = 300
"""Characters of the words for one place: a line tells of several."""

BUSY = 0.3
"""Of one processor: who uses more is computing."""

IDLE = 0.05
"""Of one processor: who uses less may be waiting."""

LOOKS = 10
"""Stacks that must be alike, where a worker computes."""

WORKED = 0.1
"""Seconds of processor that it must have used meanwhile: who got none cannot have come on."""

SPOTS = 2
"""In so many functions may one be that comes not on."""

LITTLE = 4096.0
"""Bytes in a second: who sleeps again and again, and reads no more, asks whether something has come."""

HELD_LOOKS = 0.8
"""Of the looks, those at which it must have the interpreter's lock."""

WOKEN = 2
"""Times at most that who waits for a server has woken up while it was quiet: else something came, or it asked again."""

POLL = 10.0
"""Seconds: who waits for a rank, for so long at most at a time, asks again, and is woken up by that."""

NAPS = 5.0
"""Times as long as one sleep, a rank that repeats it has been quiet: of sleeps that grow, the last is half of all."""

SETTLED = 1.5
"""Times as long as a worker must have been quiet, who stands still has not run: it may have taken light steps."""

NAP = 1.0
"""Seconds: who sleeps for longer at a time does more than to look whether something has come."""

SYNC = 10.0
"""Times as long as another wait, one for a disk may last."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one worker is.

    Attributes:
        where: in words: the line of the script, and what it calls or waits for there.
        peers: ranks whose connections it waits for.
        still: nothing has moved between the first look and the last.
        spot: what is equal for workers that are in the same place, as far as stacks tell; empty without stacks.
        sure: as far as can be seen, nothing ends its wait: no time-out, no other machine, no other thread or process,
            no handler of a signal, and no timer.
        wakes: its main thread waits for what is to come from outside, and woke up meanwhile: something came, or it
            asked again.
        main: it is the place of its main thread.
        call: what it calls of a library there.
        alone: none of its other threads, or of its processes, runs code of the script.
        stays: it computes, itself or in a process, in one function of the script, and maybe in one that it calls; or it
            sleeps there again and again, whatever it prints meanwhile.
        share: of the time for which it wanted a processor, that for which it had one.
        locked_by: the processes that hold the lock on a file for which it, or the process for which it waits, waits.
        own_lock: the wait of native code in which it is is for a lock of its own process.
        rested: seconds for which it has made no progress.
        serves: it runs a function for another rank.
        least: seconds that its wait must have lasted, by the time-outs that are seen.
    """

    what: What
    where: str
    peers: frozenset[int]
    still: bool
    spot: tuple[tuple[str, int, str], ...]
    sure: bool = False
    wakes: bool = False
    main: bool = True
    call: Frame | None = None
    alone: bool = True
    stays: bool = False
    share: float = 1.0
    locked_by: frozenset[int] = frozenset()
    own_lock: bool = False
    rested: float = 0.0
    serves: bool = False
    least: float = 0.0


def place(network: str, worker: Worker, ends: Ends, bar: float = 0.0) -> Place:
    """Where `worker` is.

    Args:
        ends: of all workers of the job.
        bar: seconds for which it must have been quiet to be taken for one that stands still.
    """
    first, last = worker.snapshots[0], worker.snapshots[-1]
    span = max(last.at - first.at, 1e-3)
    delayed = (last.delayed - first.delayed) / span
    children = (last.child_cpu - first.child_cpu) / span
    if any(child.state == "R" for child in worker.children):
        children = max(children, IDLE)  # on a busy machine, who is ready to work waits
    main, others = tracks_of(worker)
    frames = main.frames
    beats = sum(each.busy for each in others if not each.child and is_heartbeat(each.frames))
    busy = (last.cpu - first.cpu) / span - beats
    rested = worker.rested if beats >= IDLE and worker.rested is not None else worker.quiet
    # What another thread prints is no sign that the main thread comes on.
    moved = (last.output > first.output or last.moved > first.moved) and last.switches > first.switches
    rests = busy + delayed < IDLE and children < IDLE
    idle = rests and rested >= bar
    quiet = idle and not moved
    peers = _peers(network, worker, worker.blocked, ends)
    what = _what(worker, main, peers, busy, delayed, children, beats)
    if worker.servers and what == "server" and not frames:
        what = "servers"
    sure = False
    acting = main
    if what in _WAITS:
        acting, what, sure = _acting(network, worker, main, others, what, ends)
    elif what in WAITS_FOR_RANKS and (served := serving(others)):
        acting, what = _served(served, worker)
    elif what == "moves":
        acting = next((each for each in others if each.child and each.busy >= IDLE), main)
    stacks = acting.stacks
    own = script_frames(acting.frames)
    parts = {_functions(script_frames(each)) for each in stacks}
    outer = min(parts, key=len, default=())
    works = acting.busy >= BUSY and (what == "computes" or (what == "moves" and acting is not main))
    share = min(1.0, (busy + children) / acting.busy) if works else 1.0
    alike = len(stacks) > 1 and len(parts) <= SPOTS and all(each[len(each) - len(outer) :] == outer for each in parts)
    stays = works and alike and bool(outer) and not moved and not worker.spins
    little = last.moved - first.moved <= LITTLE * span
    left = acting.blocked.ends or 0.0
    naps = worker.woken > 0 and NAPS * (left + (worker.rested or 0.0)) <= worker.quiet
    again = naps if acting is main else ENDLESS * left <= worker.quiet
    if what == "computes" and acting is not main:
        still = False
    elif what == "computes" and 0 < worker.spins >= bar and _is_in_one_native_call(worker.snapshots):
        # In a collective of a library that waits in this way, too, it may come on.
        what, still = ("collective", False) if decides(frames, COLLECTIVES) else ("device", True)
    elif what == "computes":
        # In one function, and one that it calls, at each of many looks: an evaluation is in many.
        spots = len({_functions(each) for each in stacks})
        loops = len(stacks) >= LOOKS and spots <= SPOTS and _loops_in_python(worker.snapshots)
        still = loops and busy * span >= WORKED and not moved and not children
    elif what in ("stopped", "starved"):
        still = True
    elif what == "servers":
        still = False  # it comes on as soon as they answer
    elif what in ("disk", "file") and acting.blocked.call in ("fsync", "fdatasync"):
        still = quiet and worker.quiet >= SYNC * bar  # so much to write may take its time
    elif what == "sleep":
        once = not sure and not again and left < ENDLESS * bar  # it ends by itself, and soon
        still = not once and idle and little and last.output == first.output and len(parts) <= 1
        stays = not still and rests and little and len(parts) == 1 and not (once and worker.quiet >= bar)
    elif what in ("server", "pipe", "device", "disk", "file", "memory"):
        # What comes in small parts, with pauses that are longer than all looks together, wakes it up now and then; so
        # does a time-out after which it asks again. See `wakes`.
        still = quiet and last.switches <= first.switches + 1
    else:
        settled = acting is not main or not _tells_rest(worker) or (worker.rested or 0.0) >= SETTLED * bar
        still = quiet and settled and len({_functions(each) for each in stacks}) <= 1
    where = _where(acting, what)
    if what == "starved" and worker.throttled > 0:
        where = f"{where}, its control group has used up its quota".removeprefix(", ")
    wakes = acting is main and what in ("server", "pipe") and worker.woken > WOKEN
    call = called(acting.frames, own[0]) if own else None
    sure = sure or what in _PROVEN
    alone = not any(script_frames(each.frames) for each in (main, *others) if each is not acting)
    spot, on = spot_of(acting.frames), [acting.blocked] if what == "file lock" else []
    on += [each.blocked for each in worker.children] if what == "child" else []
    locked_by = frozenset(pid for each in on for pid in each.holders)
    own_lock = acting.blocked.semaphore and bool(acting.frames) and waits_in_native_code(acting.frames)
    is_main, serves = acting is main, runs_for_others(others)
    held = locked_by, own_lock
    least = least_wait(worker, acting, others, is_main=is_main) if what in _WAITS else 0.0
    return Place(
        what, where, peers, still, spot, sure, wakes, is_main, call, alone, stays, share, *held, rested, serves, least
    )


_WAITS: frozenset[What] = frozenset(
    ("idle", "server", "loader", "pipe", "file", "file lock", "lock", "either", "sleep", "signal", "child", "unknown")
)
"""What a main thread does that may wait for another thread, or for a process."""

_PROVEN: frozenset[What] = frozenset(("disk", "memory"))
_FOR_THREADS: frozenset[What] = frozenset(("lock", "either", "child", "loader", "pipe", "unknown"))
_TELLS: frozenset[What] = frozenset(("server", "peer", "pipe", "file", "file lock"))
"""What another thread waits for that is also why the main thread waits."""


def _acting(
    network: str, worker: Worker, main: Track, others: Sequence[Track], what: What, ends: Ends
) -> tuple[Track, What, bool]:
    """The thread that tells where a worker is whose main thread waits, what it does, and whether nothing ends that."""
    of_libraries = (*LIBRARIES, *(SERVERS if worker.servers else ()))
    own = [each for each in others if each.child or script_frames(each.frames) or decides(each.frames, of_libraries)]
    own = [each for each in own if not is_heartbeat(each.frames)]
    process = next((each for each in own if each.child and each.frames), None)
    inner = [each for each in own if each.apart and _for_ranks(each) == "collective"]  # in a group of the rank's own
    for each in own:
        if each not in inner and (does := _for_ranks(each)) in ("collective", "servers"):
            return each, does, False
    if working := next((each for each in own if each.busy >= IDLE), None):
        return working, "computes", False
    found: list[tuple[Track, What]] = [
        (each, _wait(each, _peers(network, worker, each.blocked, ends), worker)) for each in own if each not in inner
    ]
    if what in _FOR_THREADS:
        for each, does in found:
            if does in _TELLS:
                return each, does, False
    if inner:  # others of that group may come later
        late = [each for each, does in found if each.child and does == "sleep" and (each.blocked.ends or 0.0) > NAP]
        return (late[0], "sleep", False) if late else (inner[0], "child", False)
    if what == "lock" and any(map(_runs_native_code, others)):
        return main, "either", False  # for which an event loop waits, say
    # A thread that wakes up by itself, or that something outside may wake up, may end the wait of the main one.
    ended = len(others) >= MAX_THREADS or any(_may_wake_up(each, does) for each, does in found)
    ended = ended or any(_may_wake_up(each, _wait(each, frozenset(), worker)) for each in others if each not in own)
    ended = ended or (bool(main.frames) and signal_handlers.may_end_wait(worker))
    ended = ended or ((process is not None or what == "child") and signal_handlers.may_end_child_wait(worker))
    if process and is_halted(process):
        return process, "stopped", True
    if process and (what == "child" or not main.frames):  # which does the work in its place
        instead = _wait(process, frozenset(), worker)
        return process, instead, not ended and _is_its_own_wait(process, instead)
    if what in ("child", "loader"):
        ended = ended or not worker.children or not all(map(_is_stuck, worker.children))
    # A process that is none of its own any more may share its memory.
    sure = not ended and is_endless(main.blocked) and main.blocked.on != "terminal" and not main.blocked.shared
    return main, what, sure and (what in ("child", "loader") or _is_its_own_wait(main, what))


def _served(served: Sequence[Track], worker: Worker) -> tuple[Track, What]:
    """What the rank does for another one: first what may come on by itself."""
    if working := next((each for each in served if each.busy >= IDLE), None):
        return working, "computes"
    found: list[tuple[Track, What]] = [(each, _wait(each, frozenset(), worker)) for each in served]
    return min(found, key=lambda one: one[1] == "lock")


def _is_its_own_wait(track: Track, what: What) -> bool:
    """For nothing outside its process: what an event loop waits for is not seen, nor who may end native code's wait."""
    return what == "sleep" or (what == "lock" and track.blocked.on == "lock" and not track.blocked.shared)


def _runs_native_code(track: Track) -> bool:
    """A thread, of a pool, say, that was given a function of a library, which waits: it may be for other ranks."""
    runs = track.frames and not track.child and track.frames[0].function.rpartition(".")[2] == "run"
    return bool(runs) and not deciding(track.frames) and track.blocked.on == "lock" and track.blocked.ends is None


def _may_wake_up(track: Track, what: What) -> bool:
    """A thread, or the main one of a process, that comes on by itself, or once something outside comes."""
    if track.child:  # a process by which the main thread has its data is judged by its own wait
        return what in (*_TELLS, "idle") or not is_endless(track.blocked)
    rests = _is_its_own_wait(track, what) or (what == "loader" and track.blocked.semaphore)  # no process can end that
    return not (rests and is_endless(track.blocked)) and not is_heartbeat(track.frames)


def _is_stuck(child: Child) -> bool:
    """A process that waits for nothing that comes by itself; a pipe is what it gets its work by."""
    if child.state in HALTED or child.blocked.target == "a pipe":  # anybody may open one that has a name
        return True
    return child.blocked.on == "time" and is_endless(child.blocked)


def _peers(network: str, worker: Worker, blocked: Blocked, ends: Ends) -> frozenset[int]:
    """The other ranks whose connections it waits for."""
    return frozenset(
        rank
        for each in blocked.sockets
        if (rank := ends.get(end(network, each.remote))) is not None and rank != worker.rank
    )


def rested_in_wait(worker: Worker) -> float:
    """Seconds for which the main thread has waited and not run, where it does not ask again and again."""
    return min(worker.quiet, worker.rested or 0.0) if _tells_rest(worker) else worker.quiet


def _tells_rest(worker: Worker) -> bool:
    """Its main thread runs only when what it waits for has come, as far as the kernel tells."""
    wait = worker.blocked
    return worker.rested is not None and wait.on != "time" and (wait.ends is None or wait.ends > POLL)


def waits_for_process(frames: Sequence[Frame], blocked: Blocked) -> bool:
    """Whether a main thread, by its stack, may wait for a process that does the work; so may one without a stack."""
    return not frames or blocked.on == "child" or is_in(frames[:8], PROCESSES)


def _what(
    worker: Worker, main: Track, peers: frozenset[int], busy: float, delayed: float, children: float, beats: float
) -> What:
    channel = worker.snapshots[-1].channel
    if is_halted(main) or "freez" in channel or "refrigerator" in channel:
        return "stopped"
    # Who was ready for long before the first look, and waits again since, is not starved now.
    ready = main.states.count("R") / len(main.states)
    if ready >= READY and busy < STARVED:
        return "starved"
    if all(state == "D" for state in main.states):
        if "mem_cgroup" in channel:
            return "memory"
        if worker.blocked.call in SPAWNS:
            return "child"
        # In a wait that a signal could end, it was frozen by a control group.
        return "stopped" if worker.blocked.on in ("lock", "time", "child", "pipe", "terminal") else "disk"
    if beats < IDLE and _keeps_gil(worker.snapshots, busy + delayed):
        return "gil"
    if main.busy < BUSY and (found := _for_ranks(main)):
        return found
    if busy + delayed >= BUSY or ready >= READY:
        return "computes"
    if found := _for_ranks(main):
        return found
    if children >= IDLE:
        return "moves"
    return _wait(main, peers, worker)


def _for_ranks(track: Track) -> What | None:
    """What it waits for, by its stack, where that is for other ranks or for an accelerator."""
    if track.blocked.on in ("file", "pipe", "child", "terminal"):
        return None  # it writes what a collective operation has brought
    if is_in(track.frames[:1], HELD):
        return "collective"  # before its own first line, until rank 0 is there
    if is_in(track.frames[:1], DEVICES):
        return "device"
    if waits_for_servers(track.frames):
        return "servers"
    if waits_for_remote(track.frames):
        return "peer"
    return "collective" if decides(track.frames, COLLECTIVES) else None


def waits_for_servers(frames: Sequence[Frame]) -> bool:
    """Whether the script's innermost call is one to the parameter servers' client."""
    own = script_frames(frames)
    inner = frames[: frames.index(own[0])] if own else frames
    return is_in(inner, SERVERS) and not is_in(inner, STEP_CLOCK)


def _wait(track: Track, peers: frozenset[int], worker: Worker) -> What:
    """What a thread waits for that is in no collective."""
    frames, blocked = track.frames, track.blocked
    if peers:
        return "peer"
    own = deciding(frames)
    inner = frames[: frames.index(own)] if own else frames
    if is_in([own] if own else [], LOADERS) or (worker.children and is_in(inner, PROCESSES)):
        return "child" if blocked.on == "child" or is_in(inner, ("/subprocess.py",)) else "loader"
    if blocked.on == "local socket" and is_in(inner, ("/asyncio/",)):
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
        case "child" | "signal":
            return blocked.on
        case "lock":
            return "either" if waits_in_native_code(frames) else "lock"
        case _:
            return "unknown"


def _keeps_gil(snapshots: Sequence[Snapshot], busy: float) -> bool:
    """A thread waits in the kernel, or computes in native code while others want to run, and keeps the lock."""
    seen = [each for each in snapshots if each.holds_gil is not None]
    return busy < BUSY and len(seen) > 1 and all(each.holds_gil or each.gil_holder for each in seen)


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


def _functions(frames: Sequence[Frame]) -> tuple[tuple[str, str], ...]:
    return tuple((frame.file, frame.function) for frame in frames)


def _where(track: Track, what: What) -> str:
    frames, blocked = track.frames, track.blocked
    parts = list[str]()
    own = script_frames(frames)
    if own:
        if call := called(frames, own[0]):
            parts.append(f"{call.function}({call.arguments})")
        parts.append(f"{own[0].name}:{own[0].line} in {own[0].function}")
    elif frames:
        parts.append(f"{frames[0].name}:{frames[0].line} in {frames[0].function}")
    if blocked.target and what not in ("collective", "peer", "computes", "device"):
        parts.append(f"{blocked.call} on {blocked.target}" if blocked.call else blocked.target)
    elif not frames and blocked.call:
        parts.append(f"in the system call {blocked.call}")
    where = ", ".join(parts)
    return where if len(where) <= MAX_WHERE else f"{where[:MAX_WHERE]} ..."
