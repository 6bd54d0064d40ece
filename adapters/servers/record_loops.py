"""The loops of a buffer pool (`buffer_pool.py`) over rows, frames and records, compiled by numba as `kernels.py`.

`where[row]` (int64) is the row's frame and one, or the negative of its position on disk and one, or 0: there is no row.
`owner[frame]` (int64) is the row and one, 0: the frame is free. `clean[frame]` (int64) is the position on disk of what
is in the frame, and one, 0: it is nowhere. `hits[frame]` (uint8) counts up to MOST_HITS.
"""

from typing import Any

import numpy as np
from numba import types

from ..loops import compiled
from .kernels import mix

MOST_HITS = 3
"""A row that was used so often stays for as many turns of the hand."""

PINNED = 255
"""In place of hits: it stays."""

WILL_NEED = 3
"""POSIX_FADV_WILLNEED of Linux."""

ON_DISK = -1
"""In place of a frame."""

_pread: Any = types.ExternalFunction("pread", types.int64(types.intc, types.voidptr, types.uintp, types.int64))

_pwrite: Any = types.ExternalFunction("pwrite", types.int64(types.intc, types.voidptr, types.uintp, types.int64))

_advise: Any = types.ExternalFunction("posix_fadvise", types.intc(types.intc, types.int64, types.int64, types.intc))


@compiled
def locate_rows(where: Any, hits: Any, rows: Any, frames: Any) -> int:
    """Writes the frame of each row, or ON_DISK, and counts that it was used; of no row (-1): frame 0. How many are on
    disk."""
    missing = 0
    for position in range(len(rows)):
        row = rows[position]
        found = where[row] if row >= 0 else 1
        if found > 0:
            frame = found - 1
            frames[position] = frame
            if row >= 0 and hits[frame] < MOST_HITS:
                hits[frame] += 1
        else:
            frames[position] = ON_DISK
            missing += 1
    return missing


@compiled
def count_on_disk(where: Any, rows: Any) -> int:
    """How many of these rows are on disk; -1 is none."""
    count = 0
    for position in range(len(rows)):
        if rows[position] >= 0 and where[rows[position]] < 0:
            count += 1
    return count


@compiled
def change_frames(clean: Any, frames: Any, freed: Any) -> int:
    """What is in these frames is to be changed: writes into `freed` where on disk it was. How many."""
    count = 0
    for position in range(len(frames)):
        frame = frames[position]
        if clean[frame] != 0:
            freed[count] = clean[frame] - 1
            clean[frame] = 0
            count += 1
    return count


@compiled
def admit_rows(
    where: Any, owner: Any, clean: Any, hits: Any, rows: Any, free: Any, begun: int, chosen: Any, frames: Any
) -> int:
    """Gives frames, those of `free` from the last, to rows that are on disk, while there are some.

    Writes which of `rows` have got one into `chosen`, and which into `frames`; each begins with so many hits. How many.
    """
    count = 0
    for position in range(len(rows)):
        if count == len(free):
            break
        row = rows[position]
        if where[row] >= 0:  # twice among them
            continue
        frame = free[len(free) - 1 - count]
        owner[frame] = row + 1
        clean[frame] = -where[row]
        hits[frame] = begun
        where[row] = frame + 1
        chosen[count] = position
        frames[count] = frame
        count += 1
    return count


@compiled
def choose_cold(owner: Any, hits: Any, hand: int, steps: int, chosen: Any) -> Any:
    """The hand passes so many frames, or until `chosen` is full: which were not used since it came by last.

    Each other's hits are one fewer from then on. Source: Corbato, "A Paging Experiment with the Multics System", 1968,
    with a counter for the bit. How many, and where the hand is.
    """
    count = 0
    for _ in range(steps):
        if count == len(chosen):
            break
        if hand >= len(owner):
            hand = 0
        if owner[hand] != 0 and hits[hand] != PINNED:
            if hits[hand] == 0:
                chosen[count] = hand
                count += 1
            else:
                hits[hand] -= 1
        hand += 1
    return count, hand


@compiled
def read_records(fd: int, positions: Any, out: Any) -> int:
    """Reads the records at these positions, which are sorted, into `out` (uint8). How many could be read.

    The kernel is told of all before the first is waited for.
    """
    size = out.shape[1]
    for position in range(len(positions)):
        _advise(fd, positions[position] * size, size, WILL_NEED)
    for position in range(len(positions)):
        if _pread(fd, out[position].ctypes, np.uint64(size), positions[position] * size) != size:
            return position
    return len(positions)


@compiled
def write_records(fd: int, positions: Any, records: Any) -> int:
    """Writes records (uint8) at these positions: one call for all that follow one another. How many were written."""
    size, first = records.shape[1], 0
    while first < len(positions):
        last = first + 1
        while last < len(positions) and positions[last] == positions[last - 1] + 1:
            last += 1
        length = (last - first) * size
        if _pwrite(fd, records[first].ctypes, np.uint64(length), positions[first] * size) != length:
            return first
        first = last
    return first


@compiled
def sum_record(words: Any, id_: int) -> Any:
    """Of all words (uint64) of a record but the last, and the row's id."""
    found = mix(np.uint64(id_) + np.uint64(0x9E3779B97F4A7C15))
    for column in range(len(words) - 1):
        found = (found ^ words[column]) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found


@compiled
def seal_records(words: Any, ids: Any) -> None:
    """Writes the checksum of each record into its last word."""
    for position in range(len(ids)):
        words[position, words.shape[1] - 1] = sum_record(words[position], ids[position])


@compiled
def find_damaged(words: Any, ids: Any) -> int:
    """The first record that is not what was written of that id; as many as there are: none."""
    for position in range(len(ids)):
        if words[position, words.shape[1] - 1] != sum_record(words[position], ids[position]):
            return position
    return len(ids)
