"""Counts the records of a CSV file 64 bytes at a time, in blocks that do not depend on each other.

Source of the idea: Langdale and Lemire, "Parsing gigabytes of JSON per second" (2019). A comparison of 64 bytes gives
a word with a bit for each. The running parity of the quotes' bits says which bytes are quoted, if the block begins
outside of a quoted field; its complement says it, if it begins inside. So a block is counted for both, on any core, and
what holds is known when the blocks before it are counted.

The parity tells quoted from plain bytes only where each opening quote stands where a field begins, or behind a quote
that it doubles. Each block says whether that holds; if it does not, `find_records` reads the file from its beginning.
"""

from importlib import import_module
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic as _intrinsic

from ..loops import compiled
from .csv_split import CR, LF, QUOTE, find_records

BLOCK = 1 << 14
"""Bytes, of which the index keeps one place where a record begins: what is read for a random record, at least."""

OUTSIDE, INSIDE = 0, 1
"""How a block begins."""

FIRST, BLANK, STRAY, WIDTH = 2, 4, 6, 9
"""Columns of what `count_blocks` writes of each block: its records' ends, for OUTSIDE and INSIDE; from FIRST on: where
its first line ends, or -1; from BLANK on: whether that line is empty; from STRAY on: whether a quote stands where none
can; the last one: the parity of its quotes."""

PARITY = 8

ir: Any = import_module("llvmlite.ir")  # Any: it has no types, nor has what numba makes of an instruction
intrinsic: Any = _intrinsic


@intrinsic
def bits_of(context: Any, data: Any, at: Any, byte: Any) -> Any:
    """A word whose bit i says whether data[at + i] is that byte, of 64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, wanted = arguments
        lanes, index = ir.VectorType(ir.IntType(8), 64), ir.IntType(32)
        base = context.make_array(signature.args[0])(context, builder, array).data
        value = builder.load(builder.bitcast(builder.gep(base, [place]), lanes.as_pointer()), align=1)
        none = ir.Constant(lanes, ir.Undefined)
        one = builder.insert_element(none, wanted, ir.Constant(index, 0))
        everywhere = builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(index, 64), [0] * 64))
        return builder.bitcast(builder.icmp_unsigned("==", value, everywhere), ir.IntType(64))

    return types.uint64(data, types.intp, types.uint8), generate


@intrinsic
def count_bits(context: Any, word: Any) -> Any:
    """How many bits of a word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def lowest_bit(context: Any, word: Any) -> Any:
    """The number of the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


find_records_fast = compiled(find_records)


@compiled
def parity_of(quotes: Any) -> Any:
    """A word whose bit i says whether the bits up to i, it included, are odd in number."""
    for shift in (1, 2, 4, 8, 16, 32):
        quotes ^= quotes << np.uint64(shift)
    return quotes


@compiled
def find_records_quickly(data: Any, start: int, size: int, delimiter: int, starts: Any) -> int:
    """As `find_records` from the beginning of a line on; -1 where a quote stands where none can, or is not closed.

    Args:
        data: an array of uint8, with 64 bytes before `start`; 64 bytes behind `size` are zeros.
        starts: has room for all of them.
    """
    one, last = np.uint64(1), np.uint64(63)
    quotes_before = inside_before = np.uint64(0)
    delimiters_before = feeds_before = one << last
    count = line = 0
    for place in range(0, size, 64):
        feeds = bits_of(data, start + place, np.uint8(LF))
        quotes = bits_of(data, start + place, np.uint8(QUOTE))
        inside = inside_before
        if quotes != np.uint64(0):
            inside ^= parity_of(quotes)
            delimiters = bits_of(data, start + place, delimiter)
            if place:
                delimiters_before = bits_of(data, start + place - 64, delimiter)
            before = (delimiters | feeds | quotes) << one | (delimiters_before | feeds_before | quotes_before) >> last
            if quotes & inside & ~before != np.uint64(0):
                return -1
        ends = feeds & ~inside
        while ends != np.uint64(0):
            end = place + np.int64(lowest_bit(ends))
            if end > line + 1 or (end == line + 1 and data[start + line] != CR):
                starts[count] = line
                count += 1
            line = end + 1
            ends &= ends - one
        inside_before = np.uint64(0) - (inside >> last)
        feeds_before, quotes_before = feeds, quotes
    if inside_before != np.uint64(0):
        return -1
    if size > line + 1 or (size == line + 1 and data[start + line] != CR):
        starts[count] = line
        count += 1
    return count


@compiled
def count_lines(data: Any, begin: int, found: Any) -> bool:
    """Counts one block as `count_blocks`, if there is no quote in it: whether that is so. A third of the time."""
    one, last, before_last = np.uint64(1), np.uint64(63), np.uint64(62)
    feeds_before = bits_of(data, begin - 64, np.uint8(LF))
    count = any_quotes = np.uint64(0)
    for at in range(begin, begin + BLOCK, 64):
        feeds = bits_of(data, at, np.uint8(LF))
        any_quotes |= bits_of(data, at, np.uint8(QUOTE))
        after_feed = (feeds << one) | (feeds_before >> last)
        after_two = (feeds << np.uint64(2)) | (feeds_before >> before_last)
        count += count_bits(feeds)
        if feeds & (after_feed | after_two) != np.uint64(0):
            after_return = bits_of(data, at - 1, np.uint8(CR))
            count -= count_bits(feeds & (after_feed | (after_return & after_two)))
        feeds_before = feeds
    if any_quotes != np.uint64(0):
        return False
    found[:] = 0
    found[OUTSIDE] = count
    found[FIRST] = found[FIRST + INSIDE] = -1
    for place in range(BLOCK):
        at = begin + place
        if data[at] == LF:
            found[FIRST] = place
            found[BLANK] = data[at - 1] == LF or (data[at - 1] == CR and data[at - 2] == LF)
            break
    return True


@compiled
def count_blocks(data: Any, start: int, blocks: int, delimiter: Any, found: Any) -> None:
    """Counts `blocks` of BLOCK bytes of an array of uint8 from `start` on, which has 64 bytes before it.

    Args:
        found: int32, of (blocks, WIDTH).
    """
    one, last, before_last = np.uint64(1), np.uint64(63), np.uint64(62)
    delimiter = np.uint8(delimiter)
    any_quotes = False
    for block in range(blocks):
        begin = start + block * BLOCK
        if not any_quotes and count_lines(data, begin, found[block]):  # a block with quotes seldom stands alone
            continue
        any_quotes = False
        feeds_before = bits_of(data, begin - 64, np.uint8(LF))
        returns_before = bits_of(data, begin - 64, np.uint8(CR))
        quotes_before = bits_of(data, begin - 64, np.uint8(QUOTE))
        delimiters_before = bits_of(data, begin - 64, delimiter)
        inside_before = np.uint64(0)
        outside_count = inside_count = stray_outside = stray_inside = np.uint64(0)
        first_outside = first_inside = -1
        blank_outside = blank_inside = np.uint64(0)
        for place in range(0, BLOCK, 64):
            at = begin + place
            feeds = bits_of(data, at, np.uint8(LF))
            returns = bits_of(data, at, np.uint8(CR))
            quotes = bits_of(data, at, np.uint8(QUOTE))
            after_feed = (feeds << one) | (feeds_before >> last)
            after_two = (feeds << np.uint64(2)) | (feeds_before >> before_last)
            after_return = (returns << one) | (returns_before >> last)
            ends = feeds & ~(after_feed | (after_return & after_two))
            delimiters = bits_of(data, at, delimiter)
            inside = parity_of(quotes) ^ inside_before
            before = (feeds | delimiters | quotes) << one | (feeds_before | delimiters_before | quotes_before) >> last
            any_quotes |= quotes != np.uint64(0)
            stray_outside |= quotes & inside & ~before
            stray_inside |= quotes & ~inside & ~before
            if first_outside < 0 and feeds & ~inside != np.uint64(0):
                lowest = lowest_bit(feeds & ~inside)
                first_outside, blank_outside = place + np.int64(lowest), ~(ends >> lowest) & one
            if first_inside < 0 and feeds & inside != np.uint64(0):
                lowest = lowest_bit(feeds & inside)
                first_inside, blank_inside = place + np.int64(lowest), ~(ends >> lowest) & one
            outside_count += count_bits(ends & ~inside)
            inside_count += count_bits(ends & inside)
            inside_before = np.uint64(0) - (inside >> last)
            feeds_before, returns_before, quotes_before, delimiters_before = feeds, returns, quotes, delimiters
        found[block, OUTSIDE] = outside_count
        found[block, INSIDE] = inside_count
        found[block, FIRST] = first_outside
        found[block, FIRST + INSIDE] = first_inside
        found[block, BLANK] = blank_outside
        found[block, BLANK + INSIDE] = blank_inside
        found[block, STRAY] = stray_outside != np.uint64(0)
        found[block, STRAY + INSIDE] = stray_inside != np.uint64(0)
        found[block, PARITY] = inside_before != np.uint64(0)
