"""What checkpoints of every framework have in common, where model and position of the data are saved together."""

import os
from collections.abc import Sequence
from pathlib import Path

from ...rendezvous.errors import ElasticRunError


class BadCheckpoint(ElasticRunError, ValueError):
    """A checkpoint is damaged, of other parts, or not the same on all ranks; or a part cannot be in one."""

    __module__ = "elastic_run.exceptions"


def checked_every(every: object) -> int:
    """The steps between two saves. Raises TypeError and ValueError."""
    if not isinstance(every, int) or isinstance(every, bool):
        raise TypeError(f"every={every!r} must be a whole number of steps")
    if every < 1:
        raise ValueError(f"every={every} must be a number of steps from 1")
    return every


def checked_step(step: object, where: str) -> int:
    """The step of a checkpoint. Raises BadCheckpoint."""
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise BadCheckpoint(f"{where} is damaged: its step is {step!r}")
    return step


def differ(steps: Sequence[int], where: str) -> str:
    """What to say where the ranks found checkpoints of different steps; empty where they found the same.

    Args:
        steps: of each rank, in their order; 0: it found none.
        where: the path they were told.
    """
    if len(set(steps)) == 1:
        return ""
    newest = max(steps)
    behind = next(rank for rank, step in enumerate(steps) if step != newest)
    ahead = steps.index(newest)
    found = f"one of step {steps[behind]}" if steps[behind] else "none"
    return (
        f"the ranks do not find the same checkpoint at {where}: rank {ahead} finds one of step {newest}, and rank "
        f"{behind} {found}; put it where all nodes can read it"
    )


def sync_directory(directory: Path) -> None:
    """Has the names in it outlast a crash of the machine."""
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
