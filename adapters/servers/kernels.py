"""The loops over ids and rows, compiled by numba: each runs without the interpreter's lock, on one core.

An index has PARTS parts, each open addressing with linear probing. The part of an id is by bits of its hash that
follow those of its slot, so that a server that has few slots uses all parts; its place there is by the last.
`keys[part, place]` (int64) is the id, `places[part, place]` (int64) its row and one, or 0 where nothing is.
`masks[part]` is the part's length, a power of two, less one. So every int64 can be an id, and an array that is all
zeros is an empty index.
"""

import math
from typing import Any

import numpy as np

from ..loops import compiled

SLOT_BITS = 10
"""The slot of an id is the first bits of its hash: `master/servers/slot_table.py`."""

PART_BITS = 6

PARTS = 1 << PART_BITS

MISSING = -1
"""The row of an id that has none."""


@compiled
def mix(number: int) -> Any:
    """Scatters 64 bits: close ids get distant values. Source: the finalizer of splitmix64 (Steele et al., 2014)."""
    word = np.uint64(number)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def slot_of(id_: int) -> Any:
    """The slot of an id."""
    return mix(id_) >> np.uint64(64 - SLOT_BITS)


@compiled
def part_of(hashed: Any) -> Any:
    """The part of an index for an id of that hash."""
    return (hashed >> np.uint64(64 - SLOT_BITS - PART_BITS)) & np.uint64(PARTS - 1)


@compiled
def find_rows(keys: Any, places: Any, masks: Any, ids: Any, rows: Any) -> None:
    """Writes the row of each of `ids` into `rows`, or MISSING."""
    for position in range(len(ids)):
        wanted = ids[position]
        hashed = mix(wanted)
        part = part_of(hashed)
        at = hashed & masks[part]
        while places[part, at] != 0 and keys[part, at] != wanted:
            at = (at + np.uint64(1)) & masks[part]
        rows[position] = places[part, at] - 1


@compiled
def add_rows(keys: Any, places: Any, masks: Any, ids: Any, rows: Any, first: int, free: Any, fresh: Any) -> int:
    """As `find_rows`; an id that has none gets a row: the `free` ones from the last, then those from `first` on.

    Each part must have room for its own of `ids`. Writes into `fresh` where in `ids` the new ones are. How many.
    """
    made = 0
    for position in range(len(ids)):
        if rows[position] != MISSING:
            continue
        wanted = ids[position]
        hashed = mix(wanted)
        part = part_of(hashed)
        at = hashed & masks[part]
        while places[part, at] != 0 and keys[part, at] != wanted:
            at = (at + np.uint64(1)) & masks[part]
        if places[part, at] == 0:
            keys[part, at] = wanted
            places[part, at] = 1 + (free[len(free) - 1 - made] if made < len(free) else first + made - len(free))
            fresh[made] = position
            made += 1
        rows[position] = places[part, at] - 1
    return made


@compiled
def remove_ids(keys: Any, places: Any, masks: Any, ids: Any) -> None:
    """Takes ids out of the index: what was put after each, for want of its place, moves up (no marks of deletion)."""
    one = np.uint64(1)
    for position in range(len(ids)):
        wanted = ids[position]
        hashed = mix(wanted)
        part = part_of(hashed)
        mask = masks[part]
        hole = hashed & mask
        while places[part, hole] != 0 and keys[part, hole] != wanted:
            hole = (hole + one) & mask
        if places[part, hole] == 0:
            continue
        at = (hole + one) & mask
        while places[part, at] != 0:
            home = mix(keys[part, at]) & mask
            if ((at - home) & mask) >= ((at - hole) & mask):
                keys[part, hole], places[part, hole] = keys[part, at], places[part, at]
                hole = at
            at = (at + one) & mask
        places[part, hole] = 0


@compiled
def write_slots_of(ids: Any, rows: Any, slots: Any, counts: Any) -> None:
    """Writes the slot of each id into `slots` at its row, and counts it in `counts`."""
    for position in range(len(ids)):
        slot = slot_of(ids[position])
        slots[rows[position]] = slot
        counts[slot] += 1


@compiled
def are_ids_of(ids: Any, slots: Any) -> bool:
    """Whether all are of these slots, a bool each."""
    for position in range(len(ids)):  # noqa: SIM110  numba compiles no generators here
        if not slots[slot_of(ids[position])]:
            return False
    return True


@compiled
def choose_ids(ids: Any, slots: Any, chosen: Any) -> int:
    """Writes where in `ids` those of these slots are. How many."""
    count = 0
    for position in range(len(ids)):
        if slots[slot_of(ids[position])]:
            chosen[count] = position
            count += 1
    return count


@compiled
def write_slots(ids: Any, slots: Any) -> None:
    """Writes the slot of each id into `slots`."""
    for position in range(len(ids)):
        slots[position] = slot_of(ids[position])


@compiled
def link_rows(first: Any, before: Any, after: Any, rows: Any, slots: Any) -> None:
    """Puts rows first in the list of their slot; `slots` is by row. In a list, 0 is nothing, and 1 the row 0."""
    for position in range(len(rows)):
        row = rows[position]
        slot = slots[row]
        following = first[slot]
        before[row], after[row] = 0, following
        if following != 0:
            before[following - 1] = row + 1
        first[slot] = row + 1


@compiled
def unlink_rows(first: Any, before: Any, after: Any, rows: Any, slots: Any) -> None:
    """Takes rows out of the list of their slot."""
    for position in range(len(rows)):
        row = rows[position]
        if before[row] != 0:
            after[before[row] - 1] = after[row]
        else:
            first[slots[row]] = after[row]
        if after[row] != 0:
            before[after[row] - 1] = before[row]
        before[row], after[row] = 0, 0


@compiled
def list_rows(first: Any, after: Any, slots: Any, rows: Any) -> None:
    """Writes the rows of each of these slots, one slot after the other."""
    count = 0
    for position in range(len(slots)):
        row = first[slots[position]]
        while row != 0:
            rows[count] = row - 1
            count += 1
            row = after[row - 1]


@compiled
def lengthen_part(keys: Any, places: Any, before: int, after: int) -> None:
    """Makes room in one part, whose length becomes `after`: what lies in its first `before` places moves."""
    count = 0
    held = np.empty((before, 2), np.int64)
    for at in range(before):
        if places[at] != 0:
            held[count, 0], held[count, 1] = keys[at], places[at]
            count += 1
            places[at] = 0
    mask = np.uint64(after - 1)
    for position in range(count):
        at = mix(held[position, 0]) & mask
        while places[at] != 0:
            at = (at + np.uint64(1)) & mask
        keys[at], places[at] = held[position, 0], held[position, 1]


@compiled
def count_parts(ids: Any) -> Any:
    """How many of `ids` are in each part of an index."""
    counts = np.zeros(PARTS, np.int64)
    for position in range(len(ids)):
        counts[part_of(mix(ids[position]))] += 1
    return counts


@compiled
def split_ids(ids: Any, holders: Any, order: Any, ends: Any) -> None:
    """Which of `ids` go to which holder: a counting sort, in which the ids of one keep their order.

    Args:
        ids: int64.
        holders: int64, by slot: the index of its holder, from 0.
        order: int64, as long as `ids`: written; positions in `ids`, those of the first holder first.
        ends: zeros, int64, one for each holder: written; where those of each end in `order`.
    """
    for position in range(len(ids)):
        ends[holders[slot_of(ids[position])]] += 1
    following = 0
    for holder in range(len(ends)):
        count = ends[holder]
        ends[holder] = following
        following += count
    for position in range(len(ids)):
        holder = holders[slot_of(ids[position])]
        order[ends[holder]] = position
        ends[holder] += 1


@compiled
def merge_ids(ids: Any, keys: Any, places: Any, distinct: Any, inverse: Any) -> int:
    """Writes each id once into `distinct`, in the order in which it is first met, and where it is into `inverse`.

    `places` is all zeros, and as long as `keys`: a power of two, more than there are `ids`. How many are distinct.
    """
    mask = np.uint64(len(keys) - 1)
    count = 0
    for position in range(len(ids)):
        wanted = ids[position]
        at = mix(wanted) & mask
        while places[at] != 0 and keys[at] != wanted:
            at = (at + np.uint64(1)) & mask
        if places[at] == 0:
            keys[at] = wanted
            distinct[count] = wanted
            count += 1
            places[at] = count
        inverse[position] = places[at] - 1
    return count


@compiled
def sum_rows(gradients: Any, inverse: Any, out: Any) -> None:
    """Adds each row of `gradients` to the row of `out` that `inverse` names."""
    for position in range(len(inverse)):
        row = inverse[position]
        for column in range(out.shape[1]):
            out[row, column] += gradients[position, column]


@compiled
def gather_rows(values: Any, rows: Any, out: Any) -> None:
    """Copies `values[rows]` into `out`."""
    for position in range(len(rows)):
        row = rows[position]
        out[position] = values[row]


@compiled
def hash_texts(text: Any, ends: Any, seed: int, hashes: Any) -> None:
    """Writes a hash (int64) of each text by its bytes, its length and `seed`: eight bytes at a time through `mix`.

    `text` (uint8) has one after the other; `ends` (int64) says where each ends.
    """
    begun, first = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)), 0
    for position in range(len(ends)):
        last = ends[position]
        hashed = mix(begun ^ np.uint64(last - first))
        while first < last:
            word = np.uint64(0)
            for at in range(min(8, last - first)):
                word |= np.uint64(text[first + at]) << np.uint64(8 * at)
            hashed = mix(hashed ^ word)
            first = min(first + 8, last)
        hashes[position] = np.int64(hashed)


@compiled
def round_bits(numbers: Any, out: Any) -> None:
    """The bits of float32 numbers (uint32), rounded to bfloat16 (uint16): to the nearest, of two the even one."""
    for position in range(len(numbers)):
        bits = np.uint32(numbers[position])
        if bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):  # no number: it must not become infinite
            out[position] = np.uint16(0x7FC0)
        else:
            even = (bits >> np.uint32(16)) & np.uint32(1)
            out[position] = np.uint16((np.uint64(bits) + np.uint64(0x7FFF) + np.uint64(even)) >> np.uint64(16))


@compiled
def fill_uniform(values: Any, rows: Any, ids: Any, low: float, high: float, seed: int) -> None:
    """These rows, one for each of `ids`: uniform between `low` and `high`, by id and `seed` alone."""
    scale = (high - low) * 2.0**-53
    for position in range(len(ids)):
        word = mix(np.uint64(ids[position]) ^ mix(np.uint64(seed)))
        for column in range(values.shape[1]):
            word = mix(word + np.uint64(0x9E3779B97F4A7C15))
            values[rows[position], column] = low + float(word >> np.uint64(11)) * scale


@compiled
def fill_normal(values: Any, rows: Any, ids: Any, mean: float, std: float, seed: int) -> None:
    """As `fill_uniform`: normal with `mean` and `std`. Source: Box and Muller, 1958."""
    for position in range(len(ids)):
        word = mix(np.uint64(ids[position]) ^ mix(np.uint64(seed)))
        for column in range(values.shape[1]):
            word = mix(word + np.uint64(0x9E3779B97F4A7C15))
            radius = math.sqrt(-2.0 * math.log((float(word >> np.uint64(11)) + 1.0) * 2.0**-53))
            word = mix(word + np.uint64(0x9E3779B97F4A7C15))
            values[rows[position], column] = mean + std * radius * math.cos(
                2.0 * math.pi * float(word >> np.uint64(11)) * 2.0**-53
            )


@compiled
def apply_sgd(values: Any, rows: Any, gradients: Any, lr: float) -> None:
    for position in range(len(rows)):
        row = rows[position]
        for column in range(values.shape[1]):
            values[row, column] -= lr * gradients[position, column]


@compiled
def apply_momentum(values: Any, speed: Any, rows: Any, gradients: Any, lr: float, momentum: float) -> None:
    for position in range(len(rows)):
        row = rows[position]
        for column in range(values.shape[1]):
            speed[row, column] = momentum * speed[row, column] + gradients[position, column]
            values[row, column] -= lr * speed[row, column]


@compiled
def apply_adagrad(values: Any, squares: Any, rows: Any, gradients: Any, lr: float, eps: float) -> None:
    for position in range(len(rows)):
        row = rows[position]
        for column in range(values.shape[1]):
            gradient = gradients[position, column]
            squares[row, column] += gradient * gradient
            values[row, column] -= lr * gradient / (math.sqrt(squares[row, column]) + eps)


@compiled
def apply_adam(
    values: Any,
    mean: Any,
    square: Any,
    steps: Any,
    rows: Any,
    gradients: Any,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """Each row counts its own steps, as in torch's SparseAdam with one row a parameter."""
    for position in range(len(rows)):
        row = rows[position]
        steps[row] += 1
        first = 1.0 - beta1 ** steps[row]
        second = math.sqrt(1.0 - beta2 ** steps[row])
        for column in range(values.shape[1]):
            gradient = gradients[position, column]
            mean[row, column] = beta1 * mean[row, column] + (1.0 - beta1) * gradient
            square[row, column] = beta2 * square[row, column] + (1.0 - beta2) * gradient * gradient
            values[row, column] -= lr * mean[row, column] / first / (math.sqrt(square[row, column]) / second + eps)


@compiled
def apply_ftrl(
    values: Any, squares: Any, linear: Any, rows: Any, gradients: Any, lr: float, beta: float, l1: float, l2: float
) -> None:
    """Source: McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013, algorithm 1."""
    for position in range(len(rows)):
        row = rows[position]
        for column in range(values.shape[1]):
            gradient = gradients[position, column]
            before = squares[row, column]
            after = before + gradient * gradient
            squares[row, column] = after
            sigma = (math.sqrt(after) - math.sqrt(before)) / lr
            z = linear[row, column] + gradient - sigma * values[row, column]
            linear[row, column] = z
            if abs(z) <= l1:
                values[row, column] = 0.0
            else:
                values[row, column] = -(z - math.copysign(l1, z)) / ((beta + math.sqrt(after)) / lr + l2)


@compiled
def has_unusable(gradients: Any) -> bool:
    """Whether one is not a finite number."""
    for position in range(gradients.shape[0]):
        for column in range(gradients.shape[1]):
            if not math.isfinite(gradients[position, column]):
                return True
    return False
