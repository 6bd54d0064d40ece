"""Which rows of a table are in memory, and where; the others are on disk: a buffer pool.

What a row's numbers are, its values and what its optimizer keeps, lies in *frames*, which are fewer than rows may be.
A row that is asked for and is on disk is read into a frame. Where memory is short a hand goes round and takes the
frames of rows that were not used for a while; what has changed since it was read is written first, in bulk. Where a row
is changes no bit of it, and nothing else of the server depends on it: ids, slots, and when a row was trained on, are in
memory for all rows.

The disk is read before a row changes, and written before a frame is taken: a disk that is full leaves rows where they
are, in memory. One that cannot give back what it has taken ends the server.
"""

import math
from collections.abc import Sequence

import numpy as np

from . import kernels, record_loops
from .number_stack import NumberStack
from .record_file import NO_POSITIONS, DiskRefused, RecordFile
from .reserved_memory import give_back, reserve
from .row_memory import RowMemory, TableFull
from .server_events import Array

LEAST_BYTES = 32
"""Numbers of a row that are worth a place on disk: what stays in memory of it takes more."""

FRAME_BYTES = 17
"""Of a frame, beside the numbers."""

CHUNK_BYTES = 1 << 22
"""That are read or written at a time."""

WHERE_BYTES = 8
"""Of a row, wherever it is."""


def _item_bytes(array: Array) -> int:
    return array.itemsize * math.prod(array.shape[1:])


def describe_record(arrays: Sequence[Array]) -> np.dtype[np.void]:
    """How the numbers of a row lie in a record: each array's, one after the other, then its checksum (pure)."""
    fields = [(f"f{place}", each.dtype, each.shape[1:]) for place, each in enumerate(arrays)]
    rest = -sum(_item_bytes(each) for each in arrays) % 8
    return np.dtype([*fields, ("rest", np.uint8, (rest,)), ("checksum", np.uint64)])


WINDOW = 1 << 16
"""Frames that the hand passes, or that are given back, at a time."""


class BufferPool:
    """Of one table.

    Args:
        memory: which says how much room there is.
        arrays: of each number of a row, by frame; zeros.
        ids: of each row.

    Attributes:
        chunk: rows that are read or written at a time.
        frame_bytes: that a row takes in memory, more than on disk.
        file: of the records.
        used: frames that have rows.
        read: rows that were read from disk so far.

    Raises OSError.
    """

    def __init__(self, memory: RowMemory, arrays: Sequence[Array], ids: Array) -> None:
        self._memory = memory
        self._arrays = tuple(arrays)
        self._ids = ids
        self._record = describe_record(arrays)
        self.chunk = max(1, CHUNK_BYTES // self._record.itemsize)
        self.file = RecordFile(memory.space, self._record.itemsize)
        self.frame_bytes = sum(_item_bytes(each) for each in arrays) + FRAME_BYTES
        self.used = 0
        self.read = 0
        self._end = 0  # the frame after the last that was ever used
        frames = len(arrays[0])
        self._where = reserve((len(ids),), np.int64)
        self._owner = reserve((frames,), np.int64)
        self._clean = reserve((frames,), np.int64)
        self._hits = reserve((frames,), np.uint8)
        self._free = NumberStack()
        self._hand = 0

    def make_frames(self, count: int) -> None:
        """So many rows can come into memory then. Raises TableFull."""
        if self.used + count > len(self._owner):
            self.find_frames(count)

    @property
    def most_at_once(self) -> int:
        """Rows that may be put into memory at a time."""
        return max(1, min(self.chunk, len(self._owner) // 4))

    def count_on_disk(self, rows: Array) -> int:
        """Of these; -1 is none."""
        return int(record_loops.count_on_disk(self._where, rows))

    def locate(self, rows: Array) -> Array:
        """The frame of each of these rows, all different, which are to be changed: read from disk where they are there.

        Raises RowsUnreadable; TableFull, where nothing has changed.
        """
        frames = np.empty(len(rows), np.int64)
        if record_loops.locate_rows(self._where, self._hits, rows, frames):
            here, missing = frames[frames >= 0], rows[frames < 0]
            hits = self._hits[here]
            self._hits[here] = record_loops.PINNED
            try:
                for chunk in self._cut(missing):
                    self._admit(chunk, self._read(chunk), record_loops.PINNED, self.find_frames(len(chunk)))
            finally:
                self._hits[here] = hits
                self._hits[(loaded := self._where[missing])[loaded > 0] - 1] = 1
            record_loops.locate_rows(self._where, self._hits, rows, frames)
        self._change(frames)
        return frames

    def _change(self, frames: Array) -> None:
        freed = np.empty(len(frames), np.int64)
        self.file.free(freed[: int(record_loops.change_frames(self._clean, frames, freed))])

    def add(self, rows: Array) -> Array:
        """The frames of new rows: zeros. Raises TableFull."""
        frames = self._free.see(self.find_frames(len(rows))).copy()
        self._free.drop(len(rows))
        self.used += len(rows)
        for each in self._arrays:
            each[frames] = 0
        self._owner[frames] = rows + 1
        self._hits[frames] = 1
        self._where[rows] = frames + 1
        return frames

    def remove(self, rows: Array) -> None:
        """They go, from memory and from disk."""
        where = self._where[rows]
        self.file.free(-where[where < 0] - 1)
        frames = where[where > 0] - 1
        self._change(frames)
        self._where[rows] = 0
        self._release(frames)

    def _release(self, frames: Array) -> None:
        self._owner[frames] = self._clean[frames] = self._hits[frames] = 0
        self._free.put(frames)
        self.used -= len(frames)

    def find_frames(self, count: int) -> int:
        """As many are free then. Raises TableFull."""
        self._memory.make_room(count * self.frame_bytes)
        if (more := count - len(self._free)) > 0:
            last = self._end + more
            if last > len(self._owner):
                raise TableFull(f"{count} rows at a time are more than there is memory for")
            self._free.put(np.arange(last - 1, self._end - 1, -1))
            self._end = last
        return count

    def _read(self, rows: Array) -> Array:
        """The records of rows that are on disk. Raises RowsUnreadable."""
        records = self.file.read(-self._where[rows] - 1, self._ids[rows])
        self.read += len(rows)
        return records.view(self._record)[:, 0]

    def _admit(self, rows: Array, records: Array, hits: int, most: int) -> None:
        """Into so many free frames at most."""
        chosen, frames = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        free = self._free.see(most)
        count = int(
            record_loops.admit_rows(self._where, self._owner, self._clean, self._hits, rows, free, hits, chosen, frames)
        )
        self._free.drop(count)
        self.used += count
        for place, each in enumerate(self._arrays):
            each[frames[:count]] = records[f"f{place}"][chosen[:count]]

    def read_values(self, rows: Array, out: Array) -> None:
        """Writes the first number of each row into `out`, as `kernels.gather_rows` does; of no row (-1) anything.

        Those that were on disk are in memory from then on, as far as there is room. Raises RowsUnreadable.
        """
        frames = np.empty(len(rows), np.int64)
        missing = record_loops.locate_rows(self._where, self._hits, rows, frames)
        kernels.gather_rows(self._arrays[0], np.maximum(frames, 0) if missing else frames, out)
        for chunk in self._cut(np.flatnonzero(frames == record_loops.ON_DISK)) if missing else ():
            where = self._where[rows[chunk]]
            there, again = chunk[where < 0], chunk[where > 0]  # twice among them
            out[again] = self._arrays[0][where[where > 0] - 1]
            records = self._read(rows[there])
            out[there] = records["f0"]
            self._memory.make_room(len(there) * self.frame_bytes)
            room = max(0, self._memory.limit - self._memory.taken) // self.frame_bytes
            self._admit(rows[there], records, 0, self.find_frames(min(len(there), room)))

    def find_on_disk(self, rows: Array) -> Array:
        """Where on disk these rows are, in the file's order; -1 is none."""
        where = self._where[rows[rows >= 0]]
        return np.sort(-where[where < 0] - 1)

    def copy(self, rows: Array) -> list[Array]:
        """All numbers of these rows, which stay where they are. Raises RowsUnreadable."""
        where = self._where[rows]
        here, there = np.flatnonzero(where > 0), np.flatnonzero(where < 0)
        copies = [np.empty((len(rows), *each.shape[1:]), each.dtype) for each in self._arrays]
        for each, own in zip(copies, self._arrays, strict=True):
            each[here] = own[where[here] - 1]
        for chunk in self._cut(there):
            records = self._read(rows[chunk])
            for place, each in enumerate(copies):
                each[chunk] = records[f"f{place}"]
        return copies

    @property
    def spare_bytes(self) -> int:
        """Of frames that have no row, and may have memory."""
        return (self._end - self.used) * self.frame_bytes

    def trim(self) -> None:
        """Moves rows out of the last frames into free ones before them, and gives the memory of these back."""
        last = max(self.used, self._end - WINDOW)
        high = last + np.flatnonzero(self._owner[last : self._end])
        free = np.flatnonzero(self._owner[:last] == 0)
        low, free = free[: len(high)], free[len(high) :]
        of_frames = (*self._arrays, self._owner, self._clean, self._hits)
        for each in of_frames:
            each[low] = each[high]
        self._where[self._owner[low] - 1] = low + 1
        self._free = NumberStack()
        self._free.put(free[::-1])
        self._end = last
        for each in of_frames:
            each[high] = 0
            give_back(each, last)

    def spill(self, count: int, *, once: bool = False) -> int:
        """Writes rows that were not used for a while to disk, and frees their frames. How many: at most `count`, and
        what the hand finds as it goes round once; with `once`, some of the way."""
        done = 0
        left = min(self._end, WINDOW) if once else self._end
        while left > 0 and done < count:
            chosen = np.empty(min(self.chunk, count - done), np.int64)
            steps = min(left, WINDOW)
            left -= steps
            found, self._hand = record_loops.choose_cold(
                self._owner[: self._end], self._hits, self._hand, steps, chosen
            )
            if not (freed := self._write(chosen[:found])) and found:
                break
            done += freed
        return done

    def _write(self, frames: Array) -> int:
        """How many of them were freed."""
        rows = self._owner[frames] - 1
        dirty = self._clean[frames] == 0
        changed, owners = frames[dirty], rows[dirty]
        if len(changed):
            records = np.zeros(len(changed), self._record)
            for place, each in enumerate(self._arrays):
                records[f"f{place}"] = each[changed]
            try:
                positions = self.file.write(records.view(np.uint8).reshape(len(changed), -1), self._ids[owners])
            except DiskRefused:
                positions = NO_POSITIONS
            self._clean[changed[: len(positions)]] = positions + 1
        written = self._clean[frames] != 0
        frames, rows = frames[written], rows[written]
        self._where[rows] = -self._clean[frames]
        self._clean[frames] = 0
        self._release(frames)
        return len(frames)

    def _cut(self, rows: Array) -> list[Array]:
        return [rows[first : first + self.chunk] for first in range(0, len(rows), self.chunk)]
