"""Which state a job goes on from, where all its workers were lost: one that a node holds in memory, or the file (pure).

Each rank tells what its node holds. Rounds are one sequence within a run of the job, and begin again with the next run
of the same id; steps count within a round. So this run comes before earlier ones, a later round before a higher step,
and no clock is asked. Every rank decides the same of the same rows.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

NONE = -1
"""The step of a generation, or of a file, that is not there."""


class HeldGeneration(NamedTuple):
    """A generation that a node holds.

    Attributes:
        run: a mark of the job's run; 0: unknown.
        mark: of its header: the same for the same state.
        size: bytes.
        world: how many ranks have shards of the state beside it; 0: it is all there.
    """

    step: int = NONE
    round: int = 0
    run: int = 0
    mark: int = 0
    size: int = 0
    world: int = 0


class SavedFile(NamedTuple):
    """The checkpoint that a rank finds on disk.

    Attributes:
        run, round: in which it was written; 0: it does not say.
    """

    step: int = NONE
    round: int = 0
    run: int = 0


class RankRow(NamedTuple):
    """What one rank tells; `run`: the mark of the job's run that it is in, 0 where its agent does not know it."""

    file: SavedFile
    first: HeldGeneration
    second: HeldGeneration
    run: int = 0
    third: HeldGeneration = HeldGeneration()
    fourth: HeldGeneration = HeldGeneration()

    @property
    def numbers(self) -> list[int]:
        """As whole numbers, which ranks can exchange."""
        return [self.run, *self.file, *self.first, *self.second, *self.third, *self.fourth]

    @property
    def generations(self) -> list[HeldGeneration]:
        """Those that are there."""
        return [each for each in (self.first, self.second, self.third, self.fourth) if each.step != NONE]


def row_of(numbers: Sequence[int]) -> RankRow:
    """What has these `numbers`."""
    width, begin = len(HeldGeneration._fields), 1 + len(SavedFile._fields)
    first, second, third, fourth = (
        HeldGeneration(*numbers[at : at + width]) for at in range(begin, begin + 4 * width, width)
    )
    return RankRow(SavedFile(*numbers[1:begin]), first, second, numbers[0], third, fourth)


def mark_run(run: str) -> int:
    """A number for a job's run; 0 where it is not known."""
    return zlib.crc32(run.encode()) if run else 0


def newest_file(rows: Sequence[RankRow]) -> SavedFile:
    """The one of the highest step that any rank finds."""
    return max((row.file for row in rows), key=lambda each: each.step)


def order_candidates(rows: Sequence[RankRow]) -> list[HeldGeneration]:
    """What to try, the newest first, this run's before others'; what is not newer than the file is not tried.

    Ranks that hold the same step in two states, by their marks, are two candidates: the lowest rank's comes first.
    """
    file, run = newest_file(rows), max(row.run for row in rows)
    found: dict[HeldGeneration, None] = {}
    for row in rows:
        for each in row.generations:
            if _is_newer(each, file, run):
                found[each] = None
    return sorted(found, key=lambda each: (each.run == run, each.round, each.step), reverse=True)


def _is_newer(held: HeldGeneration, file: SavedFile, run: int) -> bool:
    if held.run and held.run == file.run:
        return (held.round, held.step) > (file.round, file.step)
    if run and file.run == run and held.run:
        return False  # an earlier run's
    return held.step > file.step  # another run's rounds are no measure; every run begins with the newest file
