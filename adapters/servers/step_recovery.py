"""What ranks of a new round ask the servers first: how far the rows are, and the step that is the job's (pure).

A position is an epoch and how many of its records are done. That of the ranks is the step that living workers have
committed (`adapters/client/commits.py`), or that of the script's checkpoint. What some server has applied by then, all
ranks had prepared: so the further one of the two is applied everywhere. Then all rows are equally far; or they are
where the ranks' position is older, because a checkpoint is, or newer, because the rows are of an older one.
"""

from collections.abc import Generator

from .requests import WHOLE_EPOCH, ApplyStep, ReadMarks

RowPosition = tuple[int, int]
"""An epoch, and records of it that are done."""

Questions = Generator[ReadMarks | ApplyStep, list[int], list[RowPosition]]
"""What all servers are to be asked, under whatever version; takes all marks that they answer, and nothing of a step
that is not prepared."""


def settle_steps(dataset: str, lease: int, position: RowPosition) -> Questions:
    """Applies the step that leads to `position`, or further where some rows are.

    From the first question on no rank of an earlier round prepares or applies anything.

    Args:
        dataset: the order of the records.
        lease: the round.
        position: of all ranks.

    Returns:
        How far rows are, sorted and each once. The first is true of all rows.
    """
    furthest = max(position, (yield from _read_positions(dataset, lease, position[0]))[-1])
    epoch, end = furthest if furthest[1] else (furthest[0] - 1, WHOLE_EPOCH)
    if epoch >= 0:
        yield ApplyStep(dataset, epoch, lease, end, 0)
    return (yield from _read_positions(dataset, lease, position[0]))


def _read_positions(dataset: str, lease: int, epoch: int) -> Questions:
    """Asks beyond the last epoch that was begun, too: a rank of an earlier round may be that far."""
    marks: dict[int, list[int]] = {}
    last = first = epoch
    while any(found := (yield ReadMarks(dataset, last, lease, 0))):
        marks[last] = found
        last += 1
    marks[last] = found
    while first and not all(marks[first]):
        first -= 1
        marks[first] = yield ReadMarks(dataset, first, lease, 0)
    return sorted({(at, mark) for at, found in marks.items() for mark in found if mark or at == first})
