"""When each row of a table was trained on last, and how often: by that some go, where there are too many (pure).

Whatever is decided here follows from the pushes that were applied in one slot, in their order, and from nothing else:
a slot's rows are the same with its primary, its backup and whoever gets a copy, though each has other slots beside it,
and rows at other places. So each slot has a *clock* of its own, and its own share of the table's limit. The clock
counts pushes; where rows go by their age it is the time that the workers give to their pushes. It is the greatest time
of any row in the slot, so that rows which are copied bring it along.
"""

import numpy as np

from ...master.servers.slot_table import SLOTS
from . import kernels
from .reserved_memory import reserve
from .server_events import Array
from .slot_sets import SlotSet
from .specs import Eviction, LeastFrequent, OlderThan

SLACK = 8
"""A slot that has too many rows is left with its share less one of so many parts, and so not looked at in each push."""

NEVER = -(2**62)


class SlotClocks:
    """Of one table.

    Args:
        evict: by what rows go.

    Attributes:
        now: by slot.
        age: after which rows go, in the unit of `now`; 0: they do not.
    """

    def __init__(self, evict: Eviction) -> None:
        self.now = np.zeros(SLOTS, np.int64)
        self.age = max(1, int(evict.seconds * 1000)) if isinstance(evict, OlderThan) else 0

    def advance(self, slots: Array, at: int) -> Array:
        """A push of that time (milliseconds) is applied in these slots (each once): in which of them rows may be old.

        An eighth of the age has passed since it was said of the slot last.
        """
        before = self.now[slots]
        after = np.maximum(before, at) if self.age else before + 1
        self.now[slots] = after
        if not self.age:
            return np.zeros(len(slots), np.bool_)
        period = max(1, self.age // SLACK)
        return before // period != after // period

    def oldest(self, slots: Array, due: Array) -> Array:
        """What is older than that goes."""
        return np.where(due, self.now[slots] - self.age, NEVER)


class RowUse:
    """Of one table.

    Args:
        evict: by what rows go.
        limit: rows of the whole table; 0: there is none.
        most: places for rows.
        clocks: of the table.

    Attributes:
        clocks: as given.
    """

    def __init__(self, evict: Eviction, limit: int, most: int, clocks: SlotClocks) -> None:
        self._limit = limit // SLOTS
        self.clocks = clocks
        self._touched = reserve((most,), np.int64)
        self._times = reserve((most if isinstance(evict, LeastFrequent) else 0,), np.int64)
        self._first = np.zeros(SLOTS, np.int64)  # of each slot's list of rows, and one: 0: there is none
        self._before = reserve((most,), np.int64)
        self._after = reserve((most,), np.int64)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """That go with a row wherever it goes."""
        return (self._touched, self._times) if len(self._times) else (self._touched,)

    def add_rows(self, rows: Array, slots: Array) -> None:
        """New ones; `slots`: of each place."""
        kernels.link_rows(self._first, self._before, self._after, rows, slots)

    def remove_rows(self, rows: Array, slots: Array) -> None:
        """They go."""
        kernels.unlink_rows(self._first, self._before, self._after, rows, slots)

    def touch(self, rows: Array, slots: Array) -> None:
        """They are trained on, after the clocks have advanced."""
        self._touched[rows] = self.clocks.now[slots[rows]]
        if len(self._times):
            self._times[rows] += 1

    def follow_rows(self, rows: Array, slots: Array) -> None:
        """They have come from another server."""
        np.maximum.at(self.clocks.now, slots[rows], self._touched[rows])

    def forget_slots(self, slots: SlotSet) -> None:
        """Their rows are to go."""
        self.clocks.now[slots] = 0

    def choose_surplus(self, slots: Array, due: Array, counts: Array, ids: Array) -> Array:
        """Which rows of these slots go now.

        Args:
            slots: each once.
            due: those of these slots in which rows may be too old.
            counts: how many rows each slot of all has.
            ids: of each place.
        """
        surplus = counts[slots] - (self._limit - self._limit // SLACK)
        surplus[(counts[slots] <= self._limit) | (not self._limit)] = 0
        some = (surplus > 0) | due
        if not some.any():
            return slots[:0]
        slots, surplus, lengths = slots[some], surplus[some], counts[slots[some]]
        rows = np.empty(int(lengths.sum()), np.int64)
        kernels.list_rows(self._first, self._after, slots, rows)
        of_slot = np.repeat(np.arange(len(slots)), lengths)
        touched = self._touched[rows]
        order = np.lexsort((ids[rows], touched, *self._list_frequencies(rows, touched, slots[of_slot]), of_slot))
        place = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # in its slot's order
        is_old = touched[order] < self.clocks.oldest(slots, due[some])[of_slot]
        return rows[order[(place < surplus[of_slot]) | is_old]]

    def _list_frequencies(self, rows: Array, touched: Array, slots: Array) -> tuple[Array, ...]:
        """How often each was trained on; but what was a moment ago goes last: it would never become frequent."""
        return (self._times[rows], touched == self.clocks.now[slots]) if len(self._times) else ()
