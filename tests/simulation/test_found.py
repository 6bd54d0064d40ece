"""Schedules that once showed a bug of the product, kept for ever.

A file of `found/` says what was wrong, and holds the smallest schedule that showed it. To read one's trace:
`python -m tests.simulation --schedule tests/simulation/found/NAME.txt`.
"""

from pathlib import Path

import pytest

from .schedule import parse
from .world import run

FOUND = sorted((Path(__file__).parent / "found").glob("*.txt"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once_breaks_no_rule_any_more(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# "), "its first line says what was wrong"
    schedule = parse(text)
    outcome = run(schedule)
    assert not outcome.violations
    assert sum(outcome.faults.values()) == len(schedule.faults), "a fault does nothing: its moment never comes"


def test_there_are_some() -> None:
    assert FOUND
