"""What an agent sees of one rank, as a person reads it (pure): its last output, or where it is."""

from collections.abc import Iterator

from ...master.diagnosis.evidence import Blocked, Frame, NodeEvidence, Snapshot, Worker
from ...rendezvous.base.plural import plural
from ...rendezvous.base.visible import visible
from ..goodput.words import span

MIB = 1 << 20

STATES = {
    "R": "runs, or is ready to",
    "S": "waits",
    "D": "waits, and cannot be interrupted",
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "I": "is idle",
}
"""By the kernel's letter."""


def log_lines(evidence: NodeEvidence, rank: int) -> Iterator[str]:
    """The last lines that it has printed; those of stderr follow those of stdout."""
    worker = worker_of(evidence, rank)
    if worker is None:
        yield f"node {visible(evidence.node)} has no worker of rank {rank} in round {evidence.round} now"
    elif worker.last_lines:
        yield from map(visible, worker.last_lines)
    else:
        yield "it has printed nothing yet"


def stack_lines(evidence: NodeEvidence, rank: int) -> Iterator[str]:
    """Where it is, seen from outside: the kernel's view, then the Python calls, the innermost first."""
    worker = worker_of(evidence, rank)
    if worker is None:
        yield f"node {visible(evidence.node)} has no worker of rank {rank} in round {evidence.round} now"
        return
    if worker.ended is not None:
        how = f"signal {-worker.ended}" if worker.ended < 0 else f"exit code {worker.ended}"
        yield f"process {worker.pid} has ended with {how}"
        return
    yield from _kernel(worker)
    yield from _python(worker)
    if worker.children:
        yield "its own processes:"
        for each in worker.children:
            where = f", in {visible(each.channel)}" if each.channel else ""
            yield f"  {each.pid} {visible(each.name)}: {STATES.get(each.state, each.state)}{where}"


def worker_of(evidence: NodeEvidence, rank: int) -> Worker | None:
    return next((each for each in evidence.workers if each.rank == rank), None)


def frame_words(frame: Frame) -> str:
    """One call on one line."""
    return visible(f"{frame.function}  {frame.file}:{frame.line}")


def _kernel(worker: Worker) -> Iterator[str]:
    files = f", {worker.descriptors} of {worker.descriptor_limit} open files" if worker.descriptor_limit else ""
    memory = f", {worker.resident // MIB} MiB" if worker.resident else ""
    threads = f", {plural(worker.threads, 'thread')}" if worker.threads else ""
    yield f"process {worker.pid}{threads}{memory}{files}"
    if not worker.snapshots:
        return
    first, last = worker.snapshots[0], worker.snapshots[-1]
    yield f"its main thread {STATES.get(last.state, last.state)}{_waits(last)}"
    between = last.at - first.at
    if between > 0:
        share = 100 * (last.cpu - first.cpu) / between
        yield f"it used {share:.0f} % of a processor while it was looked at ({span(between)})"
    if worker.quiet >= 1:
        yield f"it has made no progress that can be seen for {span(worker.quiet)}; {span(worker.allowed)} are allowed"


def _waits(snapshot: Snapshot) -> str:
    call = _call(snapshot.blocked)
    channel = f"kernel function {visible(snapshot.channel)}" if snapshot.channel else ""
    parts = ", ".join(filter(None, (call, channel)))
    return f": {parts}" if parts else ""


def _call(blocked: Blocked) -> str:
    if not blocked.call:
        return ""
    on = f" for a {blocked.on}" if blocked.on else ""
    target = f" ({visible(blocked.target)})" if blocked.target and blocked.target != f"a {blocked.on}" else ""
    return f"system call {visible(blocked.call)}{on}{target}"


def _python(worker: Worker) -> Iterator[str]:
    seen = next((each for each in reversed(worker.snapshots) if each.frames), None)
    if seen is None:
        yield f"no Python stack: {visible(worker.stacks) or 'it has none'}"
        return
    held = ", which has the interpreter's lock" if seen.holds_gil else ""
    yield f"its main thread's Python calls{held}, the innermost first:"
    yield from (f"  {frame_words(each)}" for each in seen.frames)
    if seen.gil_holder:
        yield f"another thread has the interpreter's lock: {visible(seen.gil_holder)}"
