"""What checkpoints of every framework have in common, where model and position of the data are saved together."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from ...rendezvous.base.errors import ElasticRunError
from .steps import Steps


class BadCheckpoint(ElasticRunError, ValueError, public=True):
    """A checkpoint is damaged, of other parts, or not the same on all ranks; or a part cannot be in one."""


class SavedEvery(ABC):
    """What is saved at `path`, by all ranks together, each time that so many steps have passed."""

    def __init__(self, path: str | os.PathLike[str], every: object) -> None:
        self._path = Path(path)
        self._every = steps_of("every", every)
        self._step = self._saved = 0
        self._counted = Steps()

    @property
    def step(self) -> int:
        """Commits so far, in this job and in those whose checkpoint it continues from."""
        return self._step

    def commit(self) -> bool:
        """Counts a step of the optimizer, and saves where `every` steps have passed. On every rank, after each step.

        Returns:
            whether it has saved.

        Raises: as `save`.
        """
        self._count_step()
        if not self._is_due():
            return False
        self.save()
        return True

    @abstractmethod
    def save(self) -> None:
        """Saves all parts now."""

    def _count_step(self) -> None:
        self._step += 1
        self._counted.committed()

    def _is_due(self) -> bool:
        """Whether so many steps have passed since the last save."""
        return self._step - self._saved >= self._every


def steps_of(name: str, value: object) -> int:
    """The argument `name`, a number of steps. Raises TypeError, and ValueError below 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be a whole number of steps")
    if value < 1:
        raise ValueError(f"{name}={value} must be a number of steps from 1")
    return value


def checked(found: object, where: Path, what: str, format: tuple[str, int], names: Iterable[str]) -> dict[str, Any]:
    """What a checkpoint holds, of which it says so itself. Raises BadCheckpoint.

    Args:
        what: a file or a folder.
        format: its name and version.
        names: of the parts.
    """
    held = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if held.get("format") != format[0]:
        raise BadCheckpoint(f"{where} is no {what} that Checkpoint has written: give it another path, or move it")
    if held["version"] != format[1]:
        raise BadCheckpoint(f"{where} is of version {held['version']}, and this elastic-run reads {format[1]}")
    step: object = held["step"]
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise BadCheckpoint(f"{where} is damaged: its step is {step!r}")
    if sorted(held["parts"]) != sorted(names):
        raise BadCheckpoint(
            f"{where} has the parts {', '.join(sorted(held['parts']))}, and not {', '.join(sorted(names))}: give "
            "Checkpoint the same parts, or another path"
        )
    return held


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
