"""A table whose ids get rows of their own when they are frequent, or lose them when they are not used (no I/O).

With it go up to two tables, which are copied, kept in checkpoints and removed as any other: one counts the pushes of
each id that has no row yet, and one has in each slot a row that all such ids share. Which rows there are follows from
the pushes that each slot has had, as in `row_use.py`. A copy that is under way has not all rows of a slot, and cannot
decide: it is told what each push has changed.
"""

import numpy as np

from ...master.servers.slot_table import SLOTS
from ...rendezvous.base.frozen import dataclass
from . import kernels
from .row_use import SlotClocks
from .rows import NO_IDS, Rows
from .server_events import Array

WORD = 2**64


def _find_key(slot: int) -> int:
    """The id whose hash begins with the slot, and has zeros after that: `kernels.mix`, the other way round."""
    word = slot << (64 - kernels.SLOT_BITS)
    word ^= (word >> 31) ^ (word >> 62)
    word = word * pow(0x94D049BB133111EB, -1, WORD) % WORD
    word ^= (word >> 27) ^ (word >> 54)
    word = word * pow(0xBF58476D1CE4E5B9, -1, WORD) % WORD
    word ^= (word >> 30) ^ (word >> 60)
    return word - WORD if word >> 63 else word


SLOT_KEYS: Array = np.array([_find_key(slot) for slot in range(SLOTS)], np.int64)
"""By slot, the id of its row in a table of shared rows: one of that slot."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a push has changed in one table: ids whose rows are others than before, and ids whose rows have gone."""

    rows: Rows
    ids: Array
    gone: Array


@dataclass(frozen=True, slots=True)
class RowsStep:
    """Rows for which there is room, and a gradient for each."""

    ids: Array
    rows: Array
    gradients: Array


@dataclass(frozen=True, slots=True)
class ManagedPush:
    """What a push does to a table.

    Attributes:
        slots: of its ids, each once.
        own: to rows of their own.
        admitted: ids that had none until now.
        waiting: to the counts of ids that have none still.
        shared: to the rows that these share.
    """

    slots: Array
    own: RowsStep
    admitted: Array
    waiting: RowsStep | None = None
    shared: RowsStep | None = None


class ManagedTable:
    """One.

    Args:
        clocks: of `rows` and `waiting`; None: no row goes.
        rows: of its own.
        waiting, shared: see `TableSpec`; None: each id has a row of its own from the beginning.
    """

    def __init__(
        self, clocks: SlotClocks | None, rows: Rows, waiting: Rows | None = None, shared: Rows | None = None
    ) -> None:
        self._rows = rows
        self._waiting = waiting
        self._shared = shared
        self._clocks = clocks

    def read(self, ids: Array) -> Array:
        """(n, columns) float32: of an id that has no row the one that it shares."""
        places = self._rows.find(ids)
        values = self._rows.read(places, ids)
        if self._shared is not None and len(rare := np.flatnonzero(places < 0)):
            keys = SLOT_KEYS[_slots_of(ids[rare])]
            values[rare] = self._shared.read(self._shared.find(keys), keys)
        return values

    def check_fits(self, ids: Array, reuse: bool = True) -> None:
        """Raises TableFull where a push of these ids might, in whichever of its tables."""
        self._rows.check_fits(ids)
        if self._waiting is not None and self._shared is not None:
            self._waiting.check_fits(ids)
            self._shared.check_fits(SLOT_KEYS[np.flatnonzero(np.bincount(_slots_of(ids), minlength=SLOTS))])

    def prepare_push(self, ids: Array, gradients: Array) -> ManagedPush:
        """Makes rows for it, and takes no step yet. Raises TableFull where `check_fits` was not asked."""
        ids, gradients = self._rows.leave_out(ids, gradients)
        slots = _slots_of(ids)
        distinct = np.flatnonzero(np.bincount(slots, minlength=SLOTS))
        if self._waiting is None or self._shared is None:
            return ManagedPush(distinct, self._make_rows(self._rows, ids, gradients), NO_IDS)
        is_own = self._rows.find(ids) >= 0
        absent = np.flatnonzero(~is_own)
        seen = 1 + self._waiting.read(self._waiting.find(ids[absent]), ids[absent])[:, 0]
        is_own[absent] = seen >= self._rows.spec.admit_after
        admitted, rare = ids[absent[is_own[absent]]], np.flatnonzero(~is_own)
        return ManagedPush(
            distinct,
            self._make_rows(self._rows, ids[is_own], gradients[is_own]),
            admitted,
            self._make_rows(self._waiting, ids[rare], np.full((len(rare), 1), -1.0, np.float32)),
            self._make_rows(self._shared, *_sum_by_slot(slots[rare], gradients[rare])),
        )

    def _make_rows(self, rows: Rows, ids: Array, gradients: Array) -> RowsStep:
        return RowsStep(ids, rows.make(ids, rows.find(ids)), gradients)

    def apply_push(self, push: ManagedPush, at: int) -> list[TableChange]:
        """Takes the steps, and evicts rows; `at`: the push's time, in milliseconds."""
        due = np.zeros(len(push.slots), np.bool_)
        if self._clocks is not None:
            due = self._clocks.advance(push.slots, at)
        changes = [self._take_step(self._rows, push.own, push.slots, due)]
        if self._waiting is not None and push.waiting is not None:
            left = self._waiting.remove_ids(push.admitted)
            changes.append(self._take_step(self._waiting, push.waiting, push.slots, due, left))
        if self._shared is not None and push.shared is not None:
            changes.append(self._take_step(self._shared, push.shared, push.slots, due))
        return changes

    def _take_step(self, rows: Rows, step: RowsStep, slots: Array, due: Array, left: Array = NO_IDS) -> TableChange:
        rows.apply(step.rows, step.gradients)
        rows.touch_rows(step.rows)
        return TableChange(rows, step.ids, np.concatenate([left, rows.evict_rows(slots, due)]))


def _slots_of(ids: Array) -> Array:
    slots = np.empty(len(ids), np.int64)
    kernels.write_slots(ids, slots)
    return slots


def _sum_by_slot(slots: Array, gradients: Array) -> tuple[Array, Array]:
    """The key of each slot, and the sum of its gradients, in their order."""
    distinct = np.flatnonzero(np.bincount(slots, minlength=SLOTS))
    place = np.zeros(SLOTS, np.int64)
    place[distinct] = np.arange(len(distinct))
    summed = np.zeros((len(distinct), gradients.shape[1]), np.float32)
    kernels.sum_rows(gradients, place[slots], summed)
    return SLOT_KEYS[distinct], summed
