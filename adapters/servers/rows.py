"""The rows of one table in memory, found by id, with what its optimizer keeps beside each.

Rows lie in arrays of virtual memory as long as the table may ever be: a page is taken when its first row is made, so
that a table grows without being copied. The index is cut into parts by the id's hash, and each part grows by itself:
what stands still for that is one part of many.
"""

import mmap
from typing import Any

import numpy as np

from . import kernels
from .specs import FTRL, SGD, Adagrad, Adam, Momentum, Normal, Optimizer, TableSpec, Uniform, Zeros

FIRST_PLACES = 64
"""In each part of an empty index."""

FULL = 0.6
"""Share of a part's places that may be taken; then it becomes twice as long."""

NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE, of which Python's `mmap` has no name: what is not written takes nothing."""

Array = np.ndarray[Any, np.dtype[Any]]


class TableFull(MemoryError):
    """The rows that are wanted do not fit into what a table may take."""


class Rows:
    """One table.

    Args:
        spec: what it is.
        memory: bytes that it may take; the caller sees to it that it does not make more rows.

    Attributes:
        spec: as given.
        row_bytes: that a row takes, with its state and its place in the index.
        count: rows that there are.
        skipped: gradients that were left out, because they have a number that is not finite.
    """

    def __init__(self, spec: TableSpec, memory: int) -> None:
        self.spec = spec
        self._begun = begun = _first_state(spec.optimizer)
        counts_steps = isinstance(spec.optimizer, Adam)
        self.row_bytes = (
            8 + 4 * spec.columns * (1 + len(begun)) + 8 * counts_steps + round(32 / FULL)
        )  # where the index has just become twice as long
        most = memory // self.row_bytes + 1
        self.count = 0
        self.skipped = 0
        places = 2 * FIRST_PLACES
        while places * FULL * kernels.PARTS < 2 * most:  # a part may have twice its share
            places *= 2
        self._keys = _reserve((kernels.PARTS, places), np.int64)
        self._places = _reserve((kernels.PARTS, places), np.int64)
        self._masks = np.full(kernels.PARTS, FIRST_PLACES - 1, np.uint64)
        self._held = np.zeros(kernels.PARTS, np.int64)
        self._ids = _reserve((most,), np.int64)
        self._values = _reserve((most, spec.columns), np.float32)
        self._states = [_reserve((most, spec.columns), np.float32) for _ in begun]
        self._steps = _reserve((most if counts_steps else 0,), np.int64)

    def find(self, ids: Array) -> Array:
        """The row of each id (int64), `kernels.MISSING` where it has none."""
        rows = np.empty(len(ids), np.int64)
        kernels.find_rows(self._keys, self._places, self._masks, ids, rows)
        return rows

    def make(self, ids: Array, rows: Array) -> Array:
        """`rows`, which `find` has given, with a new row, as its initializer says, for each id that had none."""
        missing = kernels.count_parts(ids[rows < 0])
        for part in np.flatnonzero(self._held + missing > (self._masks + np.uint64(1)) * FULL):
            self._lengthen(int(part), int(missing[part]))
        first = self.count
        self.count = int(kernels.add_rows(self._keys, self._places, self._masks, ids, rows, first))
        if self.count > first:
            self._begin_rows(ids, rows, first)
        return rows

    def read(self, rows: Array, ids: Array) -> Array:
        """The values of those rows, (n, columns) float32; of an id without a row, what it would begin with."""
        out = np.empty((len(rows), self.spec.columns), np.float32)
        absent = np.flatnonzero(rows < 0)
        if len(absent):
            rows = np.maximum(rows, 0)
        kernels.gather_rows(self._values, rows, out)
        if len(absent):
            begun = np.zeros((len(absent), self.spec.columns), np.float32)
            self._initialize(begun, ids[absent], 0)
            out[absent] = begun
        return out

    def apply(self, rows: Array, gradients: Array) -> None:
        """One step of the optimizer on each row, all different; `gradients`: (n, columns) float32."""
        if self.spec.unusable == "skip" and kernels.has_unusable(gradients):
            usable = np.isfinite(gradients).all(axis=1)
            self.skipped += int(len(rows) - usable.sum())
            rows, gradients = rows[usable], gradients[usable]
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

    def read_piece(self, first: int, size: int = 65_536) -> tuple[Array, Array]:
        """The ids and values of up to `size` rows from the `first` on; empty after the last. Copies."""
        last = min(first + size, self.count)
        return self._ids[first:last].copy(), self._values[first:last].copy()

    def _lengthen(self, part: int, more: int) -> None:
        before = after = int(self._masks[part]) + 1
        while self._held[part] + more > after * FULL:
            after *= 2
        if after > self._keys.shape[1]:
            raise TableFull(f"table {self.spec.name!r}: its ids' hashes are not spread over its index")
        kernels.lengthen_part(self._keys[part], self._places[part], before, after)
        self._masks[part] = after - 1

    def _begin_rows(self, ids: Array, rows: Array, first: int) -> None:
        new = np.flatnonzero(rows >= first)
        self._ids[rows[new]] = ids[new]
        begun = self._ids[first : self.count]
        self._held += kernels.count_parts(begun)
        self._initialize(self._values, begun, first)
        for state, value in zip(self._states, self._begun, strict=True):
            if value:
                state[first : self.count] = value

    def _initialize(self, values: Array, ids: Array, first: int) -> None:
        seed = self.spec.seed
        match self.spec.initializer:
            case Zeros():
                pass
            case Uniform(low, high):
                kernels.fill_uniform(values, ids, first, low, high, seed)
            case Normal(mean, std):
                kernels.fill_normal(values, ids, first, mean, std, seed)


def _first_state(optimizer: Optimizer) -> tuple[float, ...]:
    """What each array of state beside the rows begins with."""
    match optimizer:
        case SGD():
            return ()
        case Momentum():
            return (0.0,)
        case Adagrad():
            return (optimizer.initial_accumulator_value,)
        case Adam() | FTRL():
            return (0.0, 0.0)


def _reserve(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of zeros whose pages are taken when they are first written."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # or the first row of each part would take 2 MiB
    return np.frombuffer(memory, dtype).reshape(shape)
