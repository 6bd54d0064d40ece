"""Where records begin: as Python's csv module finds them."""

import csv
import io
from array import array
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from elastic_run.adapters.readers.csv_split import LINE_START, QUOTED, find_records


def records(text: str) -> list[str]:
    """The text of each record, in bytes that are one character each."""
    data, starts = text.encode("latin-1"), array("q", bytes(8 * (len(text) + 1)))
    count, _ = find_records(data, len(data), ord(","), LINE_START, starts)
    return [text[begin:end] for begin, end in pairwise([*starts[:count], len(text)])]


def by_python(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="\n")) if row]


# A carriage return that no line feed follows is an error in Python, unless it is quoted.
LINES = st.text(st.sampled_from('ab,"\n')).map(lambda text: text.replace("\n", "\r\n")) | st.text(
    st.sampled_from('ab,"\n')
)


@given(LINES)
@example('"a\nb","c ""d"" e"\r\n5" disk,"x"y"\n\n,\n"",""')
@example('a,"b\n')
def test_records_are_those_of_pythons_csv_module(text: str) -> None:
    assert [row for each in records(text) for row in by_python(each)] == by_python(text)
    assert len(records(text)) == len(by_python(text))


@given(LINES, st.integers(0, 20))
def test_a_file_in_two_parts_has_the_same_records(text: str, cut: int) -> None:
    data, starts = text.encode(), array("q", bytes(8 * (len(text) + 1)))
    count, _ = find_records(data, len(data), ord(","), LINE_START, starts)
    whole = [*starts[:count]]
    head, tail = data[:cut], data[cut:]
    count, mode = find_records(head, len(head), ord(","), LINE_START, starts)
    found = [*starts[:count]]
    count, _ = find_records(tail, len(tail), ord(","), mode, starts)
    assert [*found, *(len(head) + start for start in starts[:count])] == whole


def test_a_quoted_field_that_is_never_closed_is_seen_at_the_end() -> None:
    starts = array("q", bytes(80))
    assert find_records(b'a,"b\nc\n', 7, ord(","), LINE_START, starts) == (1, QUOTED)


def test_no_more_is_found_than_there_is_room_for() -> None:
    starts = array("q", bytes(16))
    count, _ = find_records(b"a\nb\nc\nd\n", 8, ord(","), LINE_START, starts)
    assert [*starts[:count]] == [0, 2]
