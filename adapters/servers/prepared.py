"""Pushes of a step of all ranks that wait for the word that the step counts (pure): see decision 051.

Each rank of synchronous training *prepares* its part of a step. When all ranks have, and none can undo the step any
more, it is *applied* as one push, whose gradients are the sum over the ranks, in their order: the result does not
depend on what came first. A step is of the records `begin` to `end` of an epoch, which is the `shard_index` of its
`PushSource`, and its `lease` is the round of the ranks: so marks say what is applied, and fence earlier rounds off.

What is not applied lives until it is known that it never will be: until a rank of a later round, or of this one's next
step, prepares something. It does so only after the step before was decided everywhere.
"""

from collections.abc import Sequence

import numpy as np

from ...rendezvous.base.frozen import dataclass, replace
from . import kernels
from .marks import Marks, RecordsRefused
from .requests import WHOLE_EPOCH, ApplyStep, PushSource, StepShare
from .server_events import Array
from .slot_sets import NO_SLOTS, SlotSet
from .tables import TablePart
from .wire_numbers import read_numbers, round_numbers

MOST_STEPS = 2
"""That are kept at a time, of all data."""

StepKey = tuple[str, int, int, int, int]
"""What all ranks say alike of a step: dataset, epoch, round, begin and end."""


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """What one rank has prepared in some slots, also where it has no gradients there.

    Attributes:
        bytes: that it takes, with the rows that it will make.
    """

    source: PushSource
    share: StepShare
    parts: tuple[TablePart, ...]
    slots: SlotSet
    bytes: int


def make_part(source: PushSource, share: StepShare, parts: Sequence[TablePart], slots: SlotSet) -> PreparedPart:
    """With what it takes now."""
    return PreparedPart(source, share, tuple(parts), slots, sum(map(_measure_part, parts)))


class PreparedSteps:
    """Those of one server."""

    def __init__(self) -> None:
        self._steps: dict[StepKey, list[PreparedPart]] = {}

    @property
    def is_empty(self) -> bool:
        """There is none."""
        return not self._steps

    def count_bytes(self, but: PushSource | None = None, rank: int = 0) -> int:
        """That all of it takes, with the rows that it will make.

        Args:
            but, rank: the step of which that rank's part is left out: it is prepared again.
        """
        left_out = _key_of(but) if but is not None else None
        return sum(
            part.bytes
            for key, parts in self._steps.items()
            for part in parts
            if key != left_out or part.share.rank != rank
        )

    def forget_decided(self, new: PushSource) -> None:
        """What is decided when a rank prepares that."""
        for dataset, epoch, lease, begin, end in list(self._steps):
            earlier = lease < new.lease or (epoch, end) <= (new.shard_index, new.begin)
            if dataset == new.dataset and earlier:
                del self._steps[dataset, epoch, lease, begin, end]

    def put_part(self, part: PreparedPart) -> None:
        """In place of what the rank had in these slots. What is decided by then is forgotten."""
        key = _key_of(part.source)
        self.forget_decided(part.source)
        found = self._steps.pop(key, [])
        others = [
            replace(each, slots=each.slots & ~part.slots) if each.share.rank == part.share.rank else each
            for each in found
        ]
        self._steps[key] = [each for each in others if each.slots.any()] + [part]
        while len(self._steps) > MOST_STEPS:
            del self._steps[next(iter(self._steps))]

    def find_step(self, dataset: str, epoch: int, end: int) -> StepKey | None:
        """That which ends there in that epoch, or at any record; of several rounds the last round's."""
        found = [key for key in self._steps if key[:2] == (dataset, epoch) and end in (key[4], WHOLE_EPOCH)]
        return max(found, key=lambda key: (key[2], key[4]), default=None)

    def source_of(self, key: StepKey) -> PushSource:
        """Of the whole step: as the lowest rank says it."""
        return min(self._steps[key], key=lambda part: part.share.rank).source

    def find_whole(self, key: StepKey) -> SlotSet:
        """The slots in which all ranks have prepared it."""
        parts = self._steps[key]
        whole = ~NO_SLOTS
        for rank in range(parts[0].share.world):
            of_rank = NO_SLOTS
            for part in parts:
                if part.share.rank == rank:
                    of_rank = of_rank | part.slots
            whole = whole & of_rank
        return whole

    def sum_step(self, key: StepKey, slots: SlotSet) -> list[TablePart]:
        """What it has for each table in these slots: the sum over all ranks, in their order."""
        tables: dict[str, list[TablePart]] = {}
        for part in sorted(self._steps[key], key=lambda part: part.share.rank):
            for each in part.parts:
                tables.setdefault(each.rows.spec.name, []).append(each.choose_slots(slots & part.slots))
        return [_sum_parts(parts) for _, parts in sorted(tables.items())]

    def forget_applied(self, source: PushSource, slots: SlotSet) -> None:
        """The step is in the rows of these slots."""
        key = _key_of(source)
        if key in self._steps:
            self._keep_slots(key, ~slots)

    def forget_slots(self, slots: SlotSet) -> None:
        """They are another server's."""
        for key in list(self._steps):
            self._keep_slots(key, ~slots)

    def _keep_slots(self, key: StepKey, slots: SlotSet) -> None:
        kept = [replace(part, slots=part.slots & slots) for part in self._steps[key]]
        self._steps[key] = [part for part in kept if part.slots.any()]
        if not self._steps[key]:
            del self._steps[key]

    def take_slots(self, slots: SlotSet) -> list[PreparedPart]:
        """What is prepared in these slots, for another server, which puts it there in this order."""
        return [
            replace(part, parts=tuple(each.choose_slots(chosen) for each in part.parts), slots=chosen)
            for parts in self._steps.values()
            for part in parts
            if (chosen := part.slots & slots).any()
        ]


def wanted_of(request: ApplyStep) -> PushSource:
    """All records that are to be applied then."""
    return PushSource(request.dataset, request.shard_index, request.lease, 0, request.end)


def choose_step(
    prepared: PreparedSteps, marks: Marks, request: ApplyStep, slots: SlotSet
) -> tuple[PushSource | None, list[TablePart]]:
    """The step that is to be applied in these slots, as one push; None where it is already. Raises RecordsRefused."""
    wanted = wanted_of(request)
    marks.check_lease(wanted)
    key = prepared.find_step(request.dataset, request.shard_index, request.end)
    source = prepared.source_of(key) if key is not None else wanted
    new = marks.find_new(source, slots) if key is not None else NO_SLOTS
    if key is not None and new.any():
        if (new & ~prepared.find_whole(key)).any():
            raise RecordsRefused(f"not every rank has prepared the step up to record {source.end}")
        return source, prepared.sum_step(key, new)
    if (slots & ~marks.find_applied(source, slots)).any():
        raise RecordsRefused(f"no step up to record {request.end} of epoch {request.shard_index} is prepared")
    return None, []


def _measure_part(part: TablePart) -> int:
    missing = int((part.rows.find(part.ids) < 0).sum())
    return part.ids.nbytes + part.gradients.nbytes + missing * part.rows.row_bytes


def _key_of(source: PushSource) -> StepKey:
    return source.dataset, source.shard_index, source.lease, source.begin, source.end


def _sum_parts(parts: Sequence[TablePart]) -> TablePart:
    """Of one table: each id once. Gradients are summed in float32, and rounded to the table's type once."""
    filled = [part for part in parts if len(part.ids)] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    first, spec = filled[0], filled[0].rows.spec
    ids, inverse = np.unique(np.concatenate([part.ids for part in filled]), return_inverse=True)
    summed: Array = np.zeros((len(ids), spec.columns), np.float32)
    gradients = np.concatenate([read_numbers(part.gradients) for part in filled])
    kernels.sum_rows(gradients, inverse.astype(np.int64), summed)
    return replace(first, ids=ids.astype(np.int64), gradients=round_numbers(summed, spec.dtype))
