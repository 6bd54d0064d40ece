"""What workers draw on a terminal: which of it stays as lines, and which rows are still to change."""

import pytest

from elastic_run.elastic_agent.logs.drawn_rows import SETTLE_SECONDS, DrawnRows, fitted, plain, redrawn

LATER = SETTLE_SECONDS + 1.0


def test_text_passes_as_it_comes_until_it_overwrites_itself() -> None:
    drawn = DrawnRows()
    assert drawn.feed(b"one\r\ntw", 0.0) == b"one\r\ntw"
    assert drawn.feed(b"o \x1b[31mred\x1b[0m\n10%\r", 0.0) == b"o \x1b[31mred\x1b[0m\n"
    assert drawn.rows == ["10%"]


def test_a_bar_is_one_row_and_its_last_state_a_line_that_stays() -> None:
    drawn = DrawnRows()
    for done in range(101):
        assert drawn.feed(b"\r%3d%%" % done, 0.0) == b""
        assert drawn.rows == [f"{done:3d}%"]
    assert drawn.feed(b"\n", 0.0) == b"", "what is below it may still go back to it"
    assert drawn.settles
    assert drawn.settle(LATER) == b"100%\n"
    assert (drawn.rows, drawn.settles) == ([], False)
    assert drawn.feed(b"name? ", LATER) == b"name? "


def test_bars_below_one_another_are_rows_in_their_order() -> None:
    drawn = DrawnRows()  # as two nested bars of tqdm, each write by itself
    for now, data in enumerate((b"\router 0%", b"\n", b"\rinner 0%", b"\x1b[A", b"\n", b"\rinner 9%", b"\x1b[A")):
        assert drawn.feed(data, now / 1000) == b""
    assert drawn.rows == ["outer 0%", "inner 9%"]
    assert drawn.settle(LATER) == b"", "the cursor stands in the upper one"
    drawn.feed(b"\router 5%", LATER)
    assert drawn.rows == ["outer 5%", "inner 9%"]
    assert drawn.end() == b"outer 5%\ninner 9%\n"


def test_rows_under_a_hidden_cursor_change_until_it_is_shown() -> None:
    drawn = DrawnRows()  # as rich
    drawn.feed(b"\x1b[?25la  0%\nb  0%", 0.0)
    assert drawn.settle(LATER) == b""
    drawn.feed(b"\r\x1b[2K\x1b[1A\x1b[2Kdone 1\na 50%\nb 50%", LATER)
    assert drawn.rows == ["done 1", "a 50%", "b 50%"]
    drawn.feed(b"\x1b[?25h\n", LATER)
    assert drawn.settle(2 * LATER) == b"done 1\na 50%\nb 50%\n"


def test_a_bar_that_was_wiped_leaves_nothing() -> None:
    drawn = DrawnRows()
    drawn.feed(b"\r99%", 0.0)
    drawn.feed(b"\r   \r", 0.0)
    assert (drawn.rows, drawn.end()) == ([], b"")


def test_what_was_passed_of_a_line_that_overwrites_itself_later_stays() -> None:
    drawn = DrawnRows()
    assert drawn.feed(b"load", 0.0) == b"load"
    drawn.feed(b"\r50%", 0.0)
    assert drawn.end() == b"\n50%\n"


@pytest.mark.parametrize("cut", range(1, 24))
def test_escape_sequences_may_come_in_pieces(cut: int) -> None:
    data, drawn = b"\x1b[1;31mred\x1b[0m\n\x1b[?25l\r5%\x1b[K", DrawnRows()
    given = drawn.feed(data[:cut], 0.0) + drawn.feed(data[cut:], 0.0)
    assert (given, drawn.rows) == (b"\x1b[1;31mred\x1b[0m\n", ["5%"])


def test_nothing_that_is_printed_below_a_bar_is_lost_or_kept_back_without_end() -> None:
    drawn = DrawnRows()
    lines = b"".join(b"%d\n" % number for number in range(10_000))
    given = drawn.feed(b"\rbar\n" + lines, 0.0)
    assert len(given.splitlines()) > 9_000
    assert given + drawn.end() == b"bar\n" + lines


def test_files_get_neither_escapes_nor_states_that_were_overwritten() -> None:
    assert plain(b"\x1b[1;31mred\x1b[0m \x1b]8;;http://a\x07link\x1b]8;;\x1b\\\r\n1%\r2%\nend") == b"red link\n2%\nend"


def test_a_row_takes_no_more_columns_than_there_are() -> None:
    assert fitted("\x1b[32mab\x1b[0mcd", 3) == ("\x1b[32mab\x1b[0mc\x1b[0m", 4)
    assert fitted("\u6f22\u5b57", 3) == ("\u6f22", 4)


def test_rows_take_the_place_of_those_before() -> None:
    assert redrawn((), ("a",)) == b"a"
    assert redrawn(("a",), ("b", "c")) == b"\r\x1b[Kb\nc"
    assert redrawn(("b", "c"), ()) == b"\r\x1b[1A\x1b[J"
