"""What is too heavy in the product is listed, and the list only becomes shorter."""

from pathlib import Path

import pytest

from . import weight
from .weight import Offender

LONG = Offender("lines", "a.py", "master/a.py", 600)
SHARED = (Offender("class", "Watch", "master/a.py", 1), Offender("class", "_Watch", "master/b.py", 1))
TELL = Offender("function", "tell", "master/a.py", 2)
LISTED = [*SHARED, TELL, LONG]


def test_nothing_is_heavier_than_the_list_says() -> None:
    assert "\n".join(weight.complaints(weight.heavy(), weight.listed())) == ""


@pytest.mark.parametrize(
    ("today", "complaint"),
    [
        (LISTED, []),
        ([*LISTED, Offender("class", "Watch", "master/c.py", 1)], ["new: class Watch master/c.py 1: rename it"]),
        (
            [*SHARED, Offender("function", "tell", "master/a.py", 3), LONG],
            ["new: function tell master/a.py 3 (the list allows 2): rename it"],
        ),
        (
            [*SHARED, TELL, Offender("lines", "a.py", "master/a.py", 601)],
            ["new: lines a.py master/a.py 601 (the list allows 600): split it"],
        ),
        (
            [*SHARED, TELL, Offender("lines", "a.py", "master/a.py", 599)],
            ["less, or moved: lines a.py master/a.py 599"],
        ),
        (
            [*SHARED, Offender("function", "tell", "master/b.py", 2), LONG],
            ["less, or moved: function tell master/b.py 2"],
        ),
        ([*SHARED, TELL], ["gone: lines a.py master/a.py 600"]),
    ],
)
def test_what_is_new_or_no_longer_there_is_said(today: list[Offender], complaint: list[str]) -> None:
    assert [each.removesuffix(f": run {weight.SHORTEN}") for each in weight.complaints(today, LISTED)] == complaint


def test_the_list_is_written_where_it_becomes_shorter_and_not_where_it_would_grow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(weight, "LIST", tmp_path / "weight.txt")
    weight.LIST.write_text(f"{TELL}\n{LONG}\n")
    monkeypatch.setattr(weight, "heavy", lambda: [LONG])
    assert weight.main(["--write"]) == 0
    monkeypatch.setattr(weight, "heavy", lambda: [TELL, LONG])
    assert weight.main(["--write"]) == 1
    assert weight.listed() == [LONG]
