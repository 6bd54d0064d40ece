"""Workers that stand still, as their agents have looked at them."""

from dataclasses import replace

from elastic_run.master.diagnosis.evidence import Answer, Blocked, Frame, NodeEvidence, Snapshot, ThreadState, Worker
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.diagnosis.suspects import suspects

ALL_REDUCE = (
    Frame("/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2800, "all_reduce"),
    Frame("/home/me/train.py", 38, "train"),
    Frame("/home/me/train.py", 60, "<module>"),
)
BARRIER = (
    Frame("/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 4100, "barrier"),
    Frame("/home/me/train.py", 41, "train"),
    Frame("/home/me/train.py", 60, "<module>"),
)
PASSES = Frame("/usr/lib/python3.11/threading.py", 320, "wait")
NATIVE = (Frame("/home/me/train.py", 12, "log"), Frame("/home/me/train.py", 60, "<module>"))
ELSEWHERE = (PASSES, *NATIVE)
EVALUATION = (Frame("/home/me/train.py", 90, "metric"), *NATIVE)
JOIN = (Frame("/usr/lib/python3.11/threading.py", 1112, "join"), Frame("/home/me/train.py", 70, "main"))
RUN = (Frame("/usr/lib/python3.11/subprocess.py", 1264, "wait"), *NATIVE)

LOOP = (Frame("/usr/lib/python3.11/asyncio/base_events.py", 1900, "_run_once"), *ELSEWHERE)

LOCK = Blocked("futex", "lock")
SLEEP = Blocked("clock_nanosleep", "time")
LONG = 350.0
"""Seconds of quiet from which a wait that may end is told."""


def worker(
    rank: int,
    stack: tuple[Frame, ...] = ALL_REDUCE,
    *,
    state: str = "S",
    quiet: float = 70.0,
    cpu: float = 0.0,
    on: Blocked = LOCK,
    stacks: tuple[tuple[Frame, ...], ...] = (),
    **more: object,
) -> Worker:
    """One that has been looked at five times in 0.6 s; `cpu`: of one processor."""
    taken = stacks or (stack,) * 5
    snapshots = tuple(
        Snapshot(at * 0.15, state, cpu=at * 0.15 * cpu, blocked=on, frames=frames, holds_gil=cpu > 0)
        for at, frames in enumerate(taken)
    )
    made = Worker(rank, rank, 1000 + rank, quiet=quiet, allowed=60.0, snapshots=snapshots)
    return replace(made, **more)  # pyright: ignore[reportArgumentType]


def with_threads(made: Worker, *threads: ThreadState) -> Worker:
    """The worker, its other threads seen at the first look and at the last."""
    looks = made.snapshots
    first, last = (replace(each, threads=threads) for each in (looks[0], looks[-1]))
    return replace(made, snapshots=(first, *looks[1:-1], last))


def thread(stack: tuple[Frame, ...], on: Blocked = LOCK, *, child: bool = False, state: str = "S") -> ThreadState:
    return ThreadState(7, child, state, 0.0, on, stack)


def judged(*workers: Worker, **node: object) -> tuple[Finding, ...]:
    evidence = replace(NodeEvidence("A", 1, tuple(workers)), **node)  # pyright: ignore[reportArgumentType]
    return suspects([Answer("A", "hostA", evidence)], 1)


def the_one(*workers: Worker) -> Finding:
    found = judged(*workers)
    assert len(found) == 1, found
    return found[0]
