"""Where records begin in a CSV file: one place in each block of it. Made in parallel, and kept in a file.

It holds for one size, time of change and inode of the file, for one delimiter, and for one first record. Whoever
can write as this user can also plant one with a valid checksum; a reader then finds that records are not where they
should be, and never reads beyond the file.
"""

import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...rendezvous.host.named_files import open_to_read
from .csv_masks import BLANK, BLOCK, FIRST, PARITY, STRAY, WIDTH, count_blocks, find_records_fast
from .csv_split import LF, LINE_START, QUOTED
from .errors import BadFiles, FileChanged
from .found_files import KnownFile
from .kept_indexes import keep_index, read_indexes

PIECE = 64 << 20
"""Bytes that one thread counts at a time."""

BATCH = 1 << 30
"""Bytes of files that are counted before their indexes are kept."""

BUFFER = 512 << 10
"""Bytes that are read at once: they fit beside each other into a core's cache. A multiple of BLOCK."""

LEAD = 64
"""Bytes before a buffer's own: what stands before its first block."""

_FORMAT = "elastic-run csv index 1"


@dataclass(frozen=True, slots=True, eq=False)
class CsvIndex:
    """Where records begin in one file.

    Attributes:
        size: records in the file.
        numbers: int64, rising; a record's number for each place.
        begins: int64, rising; the byte at which that record's line begins, or an empty line before it.
    """

    size: int
    numbers: Any  # Any: arrays of numpy, whose types have no place here
    begins: Any


@dataclass(frozen=True, slots=True)
class Indexed:
    """A file that is to have an index.

    Attributes:
        known: when it was opened.
        begin: the byte after its header.
        delimiter: a byte.
    """

    known: KnownFile
    begin: int
    delimiter: int

    def head(self) -> dict[str, object]:
        """What an index is bound to."""
        return {
            "format": _FORMAT,
            "size": self.known.size,
            "mtime": self.known.mtime,
            "inode": self.known.inode,
            "begin": self.begin,
            "delimiter": self.delimiter,
            "block": BLOCK,
        }


def indexes_of(files: Sequence[Indexed]) -> list[CsvIndex]:
    """The index of each file: the one that is kept, or a new one, which is kept then.

    Raises:
        BadFiles: a quoted field is never closed.
        FileChanged: a file was written meanwhile.
    """
    found = {each.known.path: _kept_index(each) for each in files}
    missing = [each for each in files if found[each.known.path] is None]
    # Workers that begin together make different ones, and find those of the others.
    random.Random().shuffle(missing)
    while missing:
        batch, size = list[Indexed](), 0
        while missing and size < BATCH:
            each = missing.pop()
            if (index := _kept_index(each)) is None:
                batch.append(each)
                size += each.known.size
            found[each.known.path] = index
        made = _made_indexes(batch)
        for each in batch:
            _keep_index(each, made[each.known.path])
        found |= made
    return [index for each in files if (index := found[each.known.path]) is not None]


def _made_indexes(files: Sequence[Indexed]) -> dict[Path, CsvIndex]:
    """A new index for each of the files, in pieces of them, on all processors that this process may use."""
    pieces = [(each, start) for each in files for start in range(each.begin, each.known.size, PIECE)]
    counted: dict[Path, list[Any]] = {each.known.path: [] for each in files}
    if pieces:
        with ThreadPoolExecutor(min(len(pieces), len(os.sched_getaffinity(0)))) as threads:
            for (each, _), blocks in zip(pieces, threads.map(_count_piece, *zip(*pieces, strict=True)), strict=True):
                counted[each.known.path].append(blocks)
    made: dict[Path, CsvIndex] = {}
    for each in files:
        made[each.known.path] = _joined_blocks(each, counted.pop(each.known.path))
        each.known.check_unchanged()
    return made


def buffers(path: Path, start: int, stop: int) -> Iterator[tuple[Any, int]]:
    """The bytes of a file in order: an array with LEAD bytes before them and zeros behind, and how many they are."""
    with open_to_read(path) as opened:
        array: Any = np.zeros(LEAD + BUFFER, np.uint8)  # Any: older numpy says of none that it has a buffer
        view = memoryview(array)
        if start >= LEAD:
            os.preadv(opened.fileno(), [view[:LEAD]], start - LEAD)
        while start < stop:
            size = min(BUFFER, stop - start)
            read = 0
            while read < size and (more := os.preadv(opened.fileno(), [view[LEAD + read : LEAD + size]], start + read)):
                read += more
            if read < size:
                raise FileChanged(f"{path} became shorter while it was read")
            if size < BUFFER:
                array[LEAD + read :] = 0
            yield array, read
            array[:LEAD] = array[read : read + LEAD]
            start += read


def _count_piece(each: Indexed, start: int) -> Any:
    """What `count_blocks` finds in one piece of a file."""
    stop = min(start + PIECE, each.known.size)
    found = np.empty((-(-(stop - start) // BLOCK), WIDTH), np.int32)
    done = 0
    for array, size in buffers(each.known.path, start, stop):
        if start == each.begin and not done:
            array[:LEAD] = LF  # the header's end, or the file's beginning: an empty line may follow
        blocks = -(-size // BLOCK)
        count_blocks(array, LEAD, blocks, each.delimiter, found[done:])
        done += blocks
    return found


def _joined_blocks(each: Indexed, counted: Sequence[Any]) -> CsvIndex:
    """The index that the counts of all blocks give."""
    if not counted:
        return CsvIndex(0, np.zeros(1, np.int64), np.full(1, each.begin, np.int64))
    blocks = np.concatenate(counted)
    parity = np.cumsum(blocks[:, PARITY]) & 1
    side = parity ^ blocks[:, PARITY]  # how each block begins
    rows = np.arange(len(blocks))
    if parity[-1] or blocks[rows, STRAY + side].any():
        return _read_through(each)
    first = blocks[rows, FIRST + side]
    ends = np.cumsum(blocks[rows, side], dtype=np.int64)
    before = ends - blocks[rows, side]
    numbers = before + 1 - blocks[rows, BLANK + side]
    begins = each.begin + rows * BLOCK + first + 1
    there = (first >= 0) & (begins < each.known.size)
    numbers, begins = np.append(0, numbers[there]), np.append(each.begin, begins[there])
    # The last line may have no end: what follows the last place is looked at once more.
    rest = sum(len(starts) for starts, _ in _records(each, int(begins[-1]), LINE_START))
    return CsvIndex(int(numbers[-1]) + rest, numbers, begins)


def _records(each: Indexed, start: int, mode: int) -> Iterator[tuple[Any, int]]:
    """Where records begin from `start` on, in the file, and what stands behind them."""
    for array, size in buffers(each.known.path, start, each.known.size):
        starts = np.empty(size // 2 + 1, np.int64)
        count, mode = find_records_fast(array[LEAD:], size, each.delimiter, mode, starts)
        yield starts[:count] + start, mode
        start += size


def _read_through(each: Indexed) -> CsvIndex:
    """The index of a file with quotes where none opens a field: record by record, from its beginning."""
    numbers, begins, size, mode, last = [np.zeros(1, np.int64)], [np.full(1, each.begin, np.int64)], 0, 0, each.begin
    for starts, after in _records(each, each.begin, LINE_START):
        mode = after
        block = (starts - each.begin) // BLOCK
        chosen = np.flatnonzero(np.diff(block, prepend=(last - each.begin) // BLOCK))
        numbers.append(size + chosen)
        begins.append(starts[chosen])
        size += len(starts)
        last = int(starts[-1]) if len(starts) else last
    if mode == QUOTED:
        raise BadFiles(
            f"{each.known.path}, line {line_of(each.known.path, last)}: a quoted field in the record that begins here "
            "is never closed, so the rest of the file is one record. Close it, or remove the record"
        )
    return CsvIndex(size, np.concatenate(numbers), np.concatenate(begins))


def line_of(path: Path, begin: int) -> int:
    """The number of the line that begins with that byte, from 1."""
    return 1 + sum(int(np.count_nonzero(array[LEAD : LEAD + size] == LF)) for array, size in buffers(path, 0, begin))


def _kept_index(each: Indexed) -> CsvIndex | None:
    """The index that lies in a file, where it fits."""
    for size, body in read_indexes(each.known.path, each.head()):
        if index := _index_in(size, body, each):
            return index
    return None


def _index_in(size: int, body: bytes, each: Indexed) -> CsvIndex | None:
    """What such a file says; None where it makes no sense."""
    if len(body) % 16:
        return None
    numbers, begins = np.frombuffer(body, "<i8").reshape(2, -1)
    whole = np.append(begins, each.known.size), np.append(numbers, size)
    if not len(begins) or numbers[0] or begins[0] != each.begin or any((np.diff(values) < 0).any() for values in whole):
        return None
    return CsvIndex(size, numbers, begins)


def _keep_index(each: Indexed, index: CsvIndex) -> None:
    body = np.stack([index.numbers, index.begins]).astype("<i8").tobytes()
    keep_index(each.known.path, each.head(), index.size, body)
