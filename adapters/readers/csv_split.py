"""Where the records of a CSV file begin, by the rules of Python's `csv` module (pure).

A quote opens a quoted field only where a field begins; anywhere else it is a character. Within a quoted field two
quotes are one, and a line end is a part of it. A line feed outside of quoted fields ends a record, with or without a
carriage return before it. An empty line is no record.

`csv_masks.py` compiles this; as it stands it runs on bytes, for the tests.
"""

from typing import Any

LINE_START, CR_AT_START, FIELD_START, PLAIN, QUOTED, QUOTE_IN_QUOTED = range(6)
"""What stands before a byte. The first two are also how many bytes of a line have been passed."""

LF, CR, QUOTE = 10, 13, 34


def find_records(data: Any, size: int, delimiter: int, mode: int, starts: Any) -> tuple[int, int]:
    """Writes where records begin in the first `size` bytes of `data` into `starts`, until that is full.

    Args:
        data: bytes, or an array of them.
        size: bytes.
        delimiter: a byte.
        mode: what stands before the first byte; a record that has begun before it is not among the `starts`.
        starts: an array of integers. One may be -1: the line began with the byte before the first one.

    Returns:
        how many there are, and the mode behind the last byte. Where `starts` is full, the rest was not looked at.
    """
    count = 0
    for at in range(size):
        byte = data[at]
        if mode == QUOTED:
            if byte == QUOTE:
                mode = QUOTE_IN_QUOTED
            continue
        if byte == LF:
            mode = LINE_START
            continue
        if mode <= CR_AT_START:
            if mode == LINE_START and byte == CR:
                mode = CR_AT_START
                continue
            if count == len(starts):
                break
            starts[count] = at - mode
            count += 1
            mode = PLAIN if mode == CR_AT_START else FIELD_START
        if byte == delimiter:
            mode = FIELD_START
        elif byte == QUOTE and mode in (FIELD_START, QUOTE_IN_QUOTED):
            mode = QUOTED
        else:
            mode = PLAIN
    return count, mode
