"""What the workers wrote, and what it says (pure, but for `Journal.read`).

Instants are nanoseconds of the machine's monotonic clock, the same for every process, so that the measuring process
and the workers may be compared. The lines:

    line RANK WORLD INSTANT                              a script's first line
    born GENERATION RANK WORLD PID FIRST IMPORTED JOINED BUILT RESTORED
    step GENERATION RANK WORLD STEP INSTANT              a rank has finished a step
    raised RANK INSTANT                                  a rank is about to raise an exception

A generation is the ranks that form one process group, named by the instant at which its rank 0 named it: one that is
greater than the instant of a fault came after the fault. A *full step* is one that all ranks of a generation have
finished, at the instant when the last of them did.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PHASES = ("launch", "import torch", "join the group", "build DDP", "restore", "first step")
"""From a beginning to the first full step: until the last worker's first line; then until the last rank had each."""


@dataclass(frozen=True, slots=True)
class Born:
    """A rank's way to its first step: the instants at which it had come so far."""

    generation: int
    rank: int
    world: int
    pid: int
    first_line: int
    imported: int
    joined: int
    built: int
    restored: int


@dataclass(frozen=True, slots=True)
class Step:
    """A rank has finished a step."""

    generation: int
    rank: int
    world: int
    number: int
    at: int


@dataclass(slots=True)
class Journal:
    """The lines of one run, read as they come."""

    path: Path
    lines: dict[int, int] = field(default_factory=dict[int, int])
    born: list[Born] = field(default_factory=list[Born])
    steps: list[Step] = field(default_factory=list[Step])
    raised: dict[int, int] = field(default_factory=dict[int, int])
    _offset: int = 0

    def read(self) -> None:
        """Takes in what has been appended since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new.rfind(b"\n") + 1
        self._offset += whole
        self.add(new[:whole].decode().splitlines())

    def add(self, lines: Iterable[str]) -> None:
        """Takes in whole lines. Raises ValueError where one is none of the journal's."""
        for text in lines:
            kind, *words = text.split()
            numbers = [int(word) for word in words]
            if kind == "line" and len(numbers) == 3:
                self.lines[numbers[0]] = numbers[2]
            elif kind == "born" and len(numbers) == 9:
                self.born.append(Born(*numbers))
            elif kind == "step" and len(numbers) == 5:
                self.steps.append(Step(*numbers))
            elif kind == "raised" and len(numbers) == 2:
                self.raised[numbers[0]] = numbers[1]
            else:
                raise ValueError(f"not a line of a journal: {text!r}")

    def first_lines(self, world: int) -> int | None:
        """When the last of `world` ranks ran its first line; None before."""
        return max(self.lines.values()) if len(self.lines) >= world else None


def full_steps(steps: Sequence[Step], *, after: int = 0) -> list[Step]:
    """The full steps of generations named later than `after`, each as the record of the rank that came last."""
    ranks: dict[tuple[int, int], dict[int, Step]] = {}
    for step in steps:
        if step.generation > after:
            ranks.setdefault((step.generation, step.number), {})[step.rank] = step
    whole = [found for found in ranks.values() if len(found) == next(iter(found.values())).world]
    return sorted((max(found.values(), key=lambda step: step.at) for found in whole), key=lambda step: step.at)


def standstill(full: Sequence[Step], event: int, first: Step) -> float:
    """Seconds without a full step: between the generations from the one at the instant `event` to that of `first`."""
    pairs = itertools.pairwise(step for step in full if step.at <= first.at)
    changes = ((one, later) for one, later in pairs if later.generation != one.generation and later.at > event)
    return sum(later.at - one.at for one, later in changes) / 1e9


def step_seconds(full: Sequence[Step]) -> float:
    """The usual time from one full step to the next of its generation. Raises StatisticsError where no two are."""
    pairs = itertools.pairwise(full)
    return statistics.median(later.at - one.at for one, later in pairs if later.generation == one.generation) / 1e9


def pids(born: Sequence[Born], generation: int) -> dict[int, int]:
    """The process of each rank of a generation."""
    return {one.rank: one.pid for one in born if one.generation == generation}


def phases(born: Sequence[Born], begun: int, first: Step) -> tuple[float, ...] | None:
    """The seconds of each of PHASES, from `begun` to the full step `first`; they add up to the whole.

    Each phase ends when the last rank has ended it. None where a rank of the generation did not tell.
    """
    ranks = [one for one in born if one.generation == first.generation]
    if len(ranks) < first.world:
        return None
    ends = (
        max(one.first_line for one in ranks),
        max(one.imported for one in ranks),
        max(one.joined for one in ranks),
        max(one.built for one in ranks),
        max(one.restored for one in ranks),
        first.at,
    )
    return tuple((end - start) / 1e9 for start, end in zip((begun, *ends), ends, strict=False))
