"""Records of one size in a file without a name, and the room that all such files of a server may take.

The file is scratch of one process: it has no name, so that the kernel removes it however the process ends. A position
that was freed is written again by a later record; but not while a copy of the process reads what was there (it writes a
checkpoint). A record carries a checksum over its bytes and its row's id, since the disk may lose what it has taken.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from ...rendezvous.base.frozen import dataclass
from . import record_loops
from .number_stack import NumberStack
from .server_events import Array

NO_POSITIONS: Array = np.empty(0, np.int64)


class DiskRefused(Exception):
    """Nothing more can be written; the message says why, and what to do."""


class RowsUnreadable(OSError):
    """Rows that were written cannot be read: the server must end, and what has their copies answers."""


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """Where rows may be that are not in memory, and how many bytes they may take there."""

    folder: Path
    size: int


class DiskSpace:
    """What the files of one server may take together.

    Attributes:
        folder, limit: as given.
        taken: bytes that the files have, with what is free in them.
        holds: positions that are freed now are not written again yet.
        starves: for want of these.
        failure: why the last record could not be written, in words; empty where it could.
    """

    def __init__(self, disk: DiskLimit) -> None:
        self.folder = disk.folder
        self.limit = disk.size
        self.taken = 0
        self.holds = self.starves = False
        self.failure = ""

    def explain_limit(self) -> str:
        """Why no more can be written."""
        why = ", while a checkpoint keeps what was there" if self.holds else ""
        return (
            f"the rows take what this server has of {self.limit >> 20} MiB on disk{why}: give --ps-disk more, or have "
            "more servers"
        )

    def open_file(self) -> int:
        """The descriptor of one that has no name. Raises OSError."""
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            return os.dup(file.fileno())

    def refuse(self, why: str) -> DiskRefused:
        """What to raise."""
        self.failure = why
        return DiskRefused(why)


class RecordFile:
    """One.

    Args:
        space: of which it takes some.
        size: bytes of a record: of 8-byte words, the last of which is its checksum.

    Raises OSError where it cannot be opened.
    """

    def __init__(self, space: DiskSpace, size: int) -> None:
        self._space = space
        self._size = size
        self._fd = -1
        self._fd = space.open_file()
        self._end = 0
        self._free = NumberStack()
        self._held: list[Array] = []

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return self._size

    @property
    def descriptor(self) -> int:
        """Of the file."""
        return self._fd

    def write(self, records: Array, ids: Array) -> Array:
        """Where records were written: (n, size) uint8, whose last word is set here. Those that there is room for.

        They follow one another where they can, which is many times as fast as at scattered places: what was freed is
        taken when that is half of the file, or nothing else is left. Raises DiskRefused: none was written.
        """
        space, free = self._space, len(self._free)
        fresh = 0 if 2 * free > self._end and free >= len(ids) else len(ids)
        fresh = min(fresh, max(0, space.limit - space.taken) // self._size)
        again = min(len(ids) - fresh, free)
        if not (count := fresh + again):
            raise space.refuse(space.explain_limit())
        records, ids = records[:count], ids[:count]
        record_loops.seal_records(records.view(np.uint64), ids)
        positions = np.concatenate([np.sort(self._free.see(again)), np.arange(self._end, self._end + fresh)])
        done = int(record_loops.write_records(self._fd, positions, records))
        if done < count:
            raise space.refuse(self._explain(int(positions[done]), records[done]))
        self._free.drop(again)
        self._end += fresh
        space.taken += fresh * self._size
        space.failure = ""
        return positions

    def _explain(self, position: int, record: Array) -> str:
        """Why that record cannot be written."""
        why = "it takes a part of a row only"
        try:
            os.pwrite(self._fd, record.data, position * self._size)
        except OSError as error:
            why = error.strerror or str(error)
        return f"rows cannot be written to {self._space.folder}: {why}: make room there, or name another --ps-disk"

    def read(self, positions: Array, ids: Array) -> Array:
        """What was written there of the rows of these ids: (n, size) uint8. Raises RowsUnreadable."""
        order = np.argsort(positions)
        positions = positions[order]
        found = np.empty((len(positions), self._size), np.uint8)
        done = int(record_loops.read_records(self._fd, positions, found))
        if done < len(positions):
            why = "the file is too short"
            try:
                os.pread(self._fd, self._size, int(positions[done]) * self._size)
            except OSError as error:
                why = error.strerror or str(error)
            raise self._give_up(why)
        if int(record_loops.find_damaged(found.view(np.uint64), ids[order])) < len(positions):
            raise self._give_up("they are not what was written")
        records = np.empty_like(found)
        records[order] = found
        return records

    def read_ahead(self, positions: Array) -> None:
        """Has the kernel fetch what is there: by another thread, while this one goes on. Nothing comes of an error."""
        record_loops.read_records(self._fd, positions, np.empty((len(positions), self._size), np.uint8))

    def _give_up(self, why: str) -> RowsUnreadable:
        return RowsUnreadable(
            f"rows in {self._space.folder} cannot be read: {why}: look at that disk, or name another --ps-disk"
        )

    def free(self, positions: Array) -> None:
        """What is there is not needed any more by this process."""
        if self._space.holds:
            self._held.append(positions.copy())
        else:
            self._free.put(positions)

    def let_go(self) -> None:
        """Nobody else reads what was freed."""
        held, self._held = self._held, []
        for each in held:
            self.free(each)
