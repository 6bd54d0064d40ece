"""Workers that stand still, as their agents have looked at them."""

from dataclasses import replace

from elastic_run.master.diagnosis.evidence import Blocked, Frame, Snapshot, Worker

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

LOCK = Blocked("futex", "lock")
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
