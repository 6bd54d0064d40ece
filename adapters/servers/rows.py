"""The rows of one table, found by id, with what its optimizer keeps beside each: in memory, or some on disk.

Rows lie in arrays of virtual memory as long as the table may ever be: a page is taken when its first row is made, so
that a table grows without being copied. The index is cut into parts by the id's hash, and each part grows by itself:
what stands still for that is one part of many. A row never moves: one that is removed leaves a free place. Rows that
are to go are removed some at a time. With a pool (`buffer_pool.py`) the numbers of a row are in one of its frames, or
on disk, and all else is here in any case.
"""

from collections.abc import Sequence

import numpy as np

from ...master.servers.slot_table import NOBODY, SLOTS
from . import kernels
from .buffer_pool import FRAME_BYTES, LEAST_BYTES, WHERE_BYTES, BufferPool
from .number_stack import NumberStack
from .reserved_memory import reserve
from .row_memory import RowMemory, TableFull
from .row_use import RowUse, SlotClocks
from .server_events import Array
from .slot_sets import NO_SLOTS, SlotSet
from .specs import FTRL, SGD, Adagrad, Adam, Momentum, Normal, TableSpec, Uniform, Zeros

FIRST_PLACES = 64
"""In each part of an empty index."""

FULL = 0.6
"""Share of a part's places that may be taken; then it becomes twice as long."""

SPARE = 2
"""How many times the memory that was given a table has room for, in virtual memory: a backup may not refuse."""

WINDOW = 1 << 18
"""Places that are looked at for one piece."""

NO_IDS: Array = np.empty(0, np.int64)

MOST_REMOVED = 16_384
"""Rows at a time: some milliseconds."""


class Rows:
    """One table.

    Args:
        spec: what it is.
        memory: bytes that it may take; the caller sees to it that it does not make many more rows.
        clocks: of its slots, where rows of it are evicted; None: its own.
        shared: what all tables of the server may take, where rows may be on disk; None: they are in memory.

    Attributes:
        spec: as given.
        row_bytes: that a row takes in memory, with its state and its place in the index.
        head_bytes: of that, where a row is on disk.
        pool: which rows are in memory; None: all are.
        end: the place after the last row.
        skipped: gradients that were left out, because they have a number that is not finite.
    """

    def __init__(
        self, spec: TableSpec, memory: int, clocks: SlotClocks | None = None, shared: RowMemory | None = None
    ) -> None:
        self.spec = spec
        self.row_bytes = spec.row_bytes
        begun, counts_steps = spec.first_state, isinstance(spec.optimizer, Adam)
        is_pooled = shared is not None and spec.number_bytes >= LEAST_BYTES
        self.head_bytes = self.row_bytes + (WHERE_BYTES - spec.number_bytes if is_pooled else 0)
        self._most = most = SPARE * memory // self.head_bytes + 1
        self.end = 0
        self.skipped = 0
        places = 2 * SLOTS  # the rows that ids share are all in one part
        while places * FULL * kernels.PARTS < 2 * most:  # a part may have twice its share
            places *= 2
        self._keys = reserve((kernels.PARTS, places), np.int64)
        self._places = reserve((kernels.PARTS, places), np.int64)
        self._masks = np.full(kernels.PARTS, FIRST_PLACES - 1, np.uint64)
        self._held = np.zeros(kernels.PARTS, np.int64)
        self._free = NumberStack()  # places
        self._ids = reserve((most,), np.int64)
        self._slots = reserve((most,), np.int16)  # NOBODY: the place is free
        self._counts = np.zeros(SLOTS, np.int64)  # of rows, by slot
        self._gone = NO_SLOTS  # slots whose rows are to be removed
        self._looked = 0  # for those, before this place
        frames = SPARE * memory // (spec.number_bytes + FRAME_BYTES) + 1 if is_pooled else most
        self._values = reserve((frames, spec.columns), np.float32)
        self._states = [reserve((frames, spec.columns), np.float32) for _ in begun]
        self._steps = reserve((frames if counts_steps else 0,), np.int64)
        self._use: RowUse | None = None
        if spec.evict is not None:
            self._use = RowUse(spec.evict, spec.limit, most, clocks or SlotClocks(spec.evict))
        self.pool = BufferPool(shared, self._list_numbers(), self._ids) if is_pooled and shared is not None else None
        if shared is not None:
            shared.add_table(self)

    def find(self, ids: Array) -> Array:
        """The row of each id (int64), `kernels.MISSING` where it has none."""
        rows = np.empty(len(ids), np.int64)
        kernels.find_rows(self._keys, self._places, self._masks, ids, rows)
        return rows

    @property
    def count(self) -> int:
        """Rows that there are."""
        return self.end - len(self._free)

    @property
    def memory_bytes(self) -> int:
        """That its rows take there."""
        return self.count * self.head_bytes + (self.pool.used * self.pool.frame_bytes if self.pool else 0)

    def count_bytes(self, places: Array) -> int:
        """Of memory, that rows at these places take which are not there; MISSING is a new one."""
        new = int((places < 0).sum())
        if self.pool is None:
            return new * self.row_bytes
        return new * self.head_bytes + (new + self.pool.count_on_disk(places)) * self.pool.frame_bytes

    def make(self, ids: Array, rows: Array, reuse: bool = True) -> Array:
        """`rows`, which `find` has given, with a new row, as its initializer says, for each id that had none.

        Args:
            reuse: free places may be taken; else new rows come after all others.

        Raises TableFull.
        """
        absent = rows < 0
        missing = kernels.count_parts(ids[absent])
        if not missing.any():
            return rows
        free = self._free.see(len(self._free) if reuse else 0)
        self._check_missing(missing, len(free))
        if self.pool is not None:
            self.pool.find_frames(int(missing.sum()))
        for part in np.flatnonzero(self._held + missing > (self._masks + np.uint64(1)) * FULL):
            self._lengthen(int(part), int(missing[part]))
        fresh = np.empty(int(missing.sum()), np.int64)
        made = int(kernels.add_rows(self._keys, self._places, self._masks, ids, rows, self.end, free, fresh))
        used = min(made, len(free))
        self.end += made - used
        self._free.drop(used)
        self._begin_rows(ids[fresh[:made]], rows[fresh[:made]])
        return rows

    def check_fits(self, ids: Array, reuse: bool = True) -> None:
        """Raises TableFull where `make` would, for those of these ids that have no row."""
        if self.end + len(ids) > self._most or int(self._held.max()) + len(ids) > self._keys.shape[1] * FULL:
            self._check_missing(kernels.count_parts(ids[self.find(ids) < 0]), len(self._free) if reuse else 0)
        if self.pool is not None:
            self.pool.make_frames(len(ids))

    def _check_missing(self, missing: Array, free: int) -> None:
        """Raises TableFull where there is no room for so many rows more in each part of the index."""
        if self.end + int(missing.sum()) - free > self._most:
            raise TableFull(f"table {self.spec.name!r}: more rows than there is room for")
        if (self._held + missing > self._keys.shape[1] * FULL).any():
            raise TableFull(f"table {self.spec.name!r}: its ids' hashes are not spread over its index")

    def has_rows(self, slots: SlotSet) -> bool:
        """Whether there are any of these slots."""
        return bool(self._counts[slots].any())

    def forget_slots(self, slots: SlotSet) -> None:
        """Their rows are to be removed, by `remove_some`. Until all are, nothing may be made in these slots."""
        self._gone = (self._gone | slots) & (self._counts > 0)
        self._looked = 0
        if self._use is not None:
            self._use.forget_slots(slots)

    def remove_some(self) -> bool:
        """Removes a few of those that are to go, and makes their places free. Whether there are more."""
        if not self._gone.any():
            return False
        rows, self._looked = self._choose(self._looked, self._gone, MOST_REMOVED)
        self._remove_rows(rows)
        self._gone = self._gone & (self._counts > 0)
        return bool(self._gone.any())

    def remove_ids(self, ids: Array) -> Array:
        """Those of them that have rows, which go."""
        rows = self.find(ids)
        there = rows >= 0
        self._remove_rows(rows[there])
        return ids[there]

    def touch_rows(self, rows: Array) -> None:
        """They are trained on now, by the clocks."""
        if self._use is not None:
            self._use.touch(rows, self._slots)

    def evict_rows(self, slots: Array, due: Array) -> Array:
        """Removes what is too much in these slots (int64, each once). The ids. See `RowUse.choose_surplus`."""
        if self._use is None:
            return NO_IDS
        rows = self._use.choose_surplus(slots, due, self._counts, self._ids)
        ids = self._ids[rows]
        self._remove_rows(rows)
        return ids

    def _remove_rows(self, rows: Array) -> None:
        if not len(rows):
            return
        ids = self._ids[rows]
        kernels.remove_ids(self._keys, self._places, self._masks, ids)
        self._held -= kernels.count_parts(ids)
        self._counts -= np.bincount(self._slots[rows], minlength=SLOTS)
        if self._use is not None:
            self._use.remove_rows(rows, self._slots)
        self._slots[rows] = NOBODY
        for each in self._list_uses() if self.pool is not None else self._list_arrays():
            each[rows] = 0  # as the next row there finds a place that was never used
        if self.pool is not None:
            self.pool.remove(rows)
        self._free.put(rows[::-1])

    def read(self, rows: Array, ids: Array) -> Array:
        """The values of those rows, (n, columns) float32; of an id without a row, what it would begin with."""
        out = np.empty((len(rows), self.spec.columns), np.float32)
        absent = np.flatnonzero(rows < 0)
        if self.pool is not None:
            self.pool.read_values(rows, out)
        else:
            kernels.gather_rows(self._values, np.maximum(rows, 0) if len(absent) else rows, out)
        if len(absent):
            begun = np.zeros((len(absent), self.spec.columns), np.float32)
            self._initialize(begun, np.arange(len(absent)), ids[absent])
            out[absent] = begun
        return out

    def apply(self, rows: Array, gradients: Array) -> None:
        """One step of the optimizer on each row, all different; `gradients`: (n, columns) float32."""
        rows, gradients = self.leave_out(rows, gradients)
        rows = self.pool.locate(rows) if self.pool is not None else rows
        values, states, f4 = self._values, self._states, np.float32
        match self.spec.optimizer:
            case SGD(lr):
                kernels.apply_sgd(values, rows, gradients, f4(lr))
            case Momentum(lr, momentum):
                kernels.apply_momentum(values, states[0], rows, gradients, f4(lr), f4(momentum))
            case Adagrad(lr, eps):
                kernels.apply_adagrad(values, states[0], rows, gradients, f4(lr), f4(eps))
            case Adam(lr, beta1, beta2, eps):
                kernels.apply_adam(values, *states, self._steps, rows, gradients, lr, beta1, beta2, eps)
            case FTRL(lr, beta, l1, l2):
                kernels.apply_ftrl(values, *states, rows, gradients, lr, beta, l1, l2)

    def leave_out(self, array: Array, gradients: Array) -> tuple[Array, Array]:
        """What there is for each gradient, and the gradient, of those that are finite, if the table skips others."""
        if self.spec.unusable != "skip" or not kernels.has_unusable(gradients):
            return array, gradients
        usable = np.isfinite(gradients).all(axis=1)
        self.skipped += int(len(array) - usable.sum())
        return array[usable], gradients[usable]

    def read_piece(self, first: int, slots: SlotSet) -> tuple[Array, Array, int]:
        """The ids and values of some rows of these slots from a place on, and from where the next piece is."""
        rows, following = self._choose(first, slots, max(1, min(65_536, (1 << 26) // self.row_bytes)))
        ids, values, *_ = self._copy_rows(rows)
        return ids, values, following

    def copy_piece(self, first: int, slots: SlotSet, size: int) -> tuple[list[Array], int]:
        """As `read_piece`, with all that the rows are: what `put_piece` takes."""
        rows, following = self._choose(first, slots, size)
        return self._copy_rows(rows), following

    def copy_ids(self, ids: Array) -> list[Array]:
        """As `copy_piece`, of those of these ids that have rows."""
        rows = self.find(ids)
        return self._copy_rows(rows[rows >= 0])

    def _copy_rows(self, rows: Array) -> list[Array]:
        numbers = self.pool.copy(rows) if self.pool is not None else [each[rows] for each in self._list_numbers()]
        return [self._ids[rows], *numbers, *(each[rows] for each in self._list_uses())]

    def put_piece(self, arrays: Sequence[Array], reuse: bool = True) -> None:
        """Rows as another server has them; ValueError where the arrays are not of this table."""
        mine = self._list_arrays()
        ids, *parts = arrays
        if [(each.dtype, each.shape) for each in parts] != [(own.dtype, (len(ids), *own.shape[1:])) for own in mine]:
            raise ValueError(f"these are no rows of table {self.spec.name!r}")
        numbers, uses = self._list_numbers(), self._list_uses()
        most = self.pool.most_at_once if self.pool is not None else max(1, len(ids))
        for some in (slice(first, first + most) for first in range(0, len(ids), most)):
            rows = self.make(ids[some], self.find(ids[some]), reuse)
            at = self.pool.locate(rows) if self.pool is not None else rows
            for own, part in zip(numbers, parts[: len(numbers)], strict=True):
                own[at] = part[some]
            for own, part in zip(uses, parts[len(numbers) :], strict=True):
                own[rows] = part[some]
            if self._use is not None:
                self._use.follow_rows(rows, self._slots)

    def _choose(self, first: int, slots: SlotSet, size: int) -> tuple[Array, int]:
        last = min(first + WINDOW, self.end)
        rows = first + np.flatnonzero(_with_nobody(slots)[self._slots[first:last]])
        if len(rows) <= size:
            return rows, max(first, last)
        return rows[:size], int(rows[size])

    def _list_arrays(self) -> tuple[Array, ...]:
        """All that a row is, but for its id."""
        return (*self._list_numbers(), *self._list_uses())

    def _list_numbers(self) -> tuple[Array, ...]:
        """What is computed with: by row, or by frame of the pool."""
        steps = (self._steps,) if len(self._steps) else ()
        return (self._values, *self._states, *steps)

    def _list_uses(self) -> tuple[Array, ...]:
        """When and how often a row was trained on, by row."""
        return self._use.arrays if self._use is not None else ()

    def _lengthen(self, part: int, more: int) -> None:
        before = after = int(self._masks[part]) + 1
        while self._held[part] + more > after * FULL:
            after *= 2
        kernels.lengthen_part(self._keys[part], self._places[part], before, after)
        self._masks[part] = after - 1

    def _begin_rows(self, ids: Array, rows: Array) -> None:
        """Those that `make` has made."""
        self._ids[rows] = ids
        kernels.write_slots_of(ids, rows, self._slots, self._counts)
        self._held += kernels.count_parts(ids)
        if self._use is not None:
            self._use.add_rows(rows, self._slots)
        at = self.pool.add(rows) if self.pool is not None else rows
        self._initialize(self._values, at, ids)
        for state, value in zip(self._states, self.spec.first_state, strict=True):
            if value:
                state[at] = value

    def _initialize(self, values: Array, rows: Array, ids: Array) -> None:
        """Where there are zeros."""
        seed = self.spec.seed
        match self.spec.initializer:
            case Zeros():
                pass
            case Uniform(low, high):
                kernels.fill_uniform(values, rows, ids, low, high, seed)
            case Normal(mean, std):
                kernels.fill_normal(values, rows, ids, mean, std, seed)


def _with_nobody(slots: SlotSet) -> SlotSet:
    """With False at the end, which is what the slot of a free place finds."""
    return np.append(slots, False)
