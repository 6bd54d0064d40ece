"""What came from elsewhere is no command to a terminal, and no line of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.rendezvous.base.visible import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("rank 1 died: Größe 3 μs", "rank 1 died: Größe 3 μs"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\tc\x00", "a\\rb\tc\\x00"),
        ("\u202eevil", r"\u202eevil"),
        ("a\u2028b\x85c", r"a\u2028b\x85c"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_control_characters_are_shown_and_not_done(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_colours_stay_where_they_are_allowed_and_nothing_else() -> None:
    assert visible("\x1b[1;31mred\x1b[0m \x1b[5A", colours=True) == "\x1b[1;31mred\x1b[0m \\x1b[5A"


@given(st.text())
def test_no_text_has_a_control_character_left(text: str) -> None:
    assert visible(text).replace("\t", "").isprintable()
    assert visible(visible(text)) == visible(text)


def test_a_line_feed_begins_no_line_of_its_own() -> None:
    assert visible_lines("it failed\n[elastic-run] job a succeeded\x1b[A") == [
        "it failed",
        "| [elastic-run] job a succeeded\\x1b[A",
    ]
