"""Stories worth reading: schedules written by hand, each with all that happens.

A file of `stories/` holds what the story is about, the schedule, a line `---` and the expected trace. To read one
with changes: `python -m tests.simulation --schedule tests/simulation/stories/NAME.txt`. After a change that alters
what happens, `pytest tests/simulation/test_stories.py --record` writes the traces anew: read the difference.
"""

import difflib
from pathlib import Path

import pytest

from .schedule import Schedule, parse
from .world import Outcome, run

STORIES = Path(__file__).parent / "stories"
LINE = "---\n"


def told(schedule: Schedule, outcome: Outcome) -> str:
    """The part of a story's file after the line."""
    end = f"the job: {outcome.state or 'no round'}; faults that did something: {sum(outcome.faults.values())}"
    return "\n".join((*outcome.trace, "", end)) + "\n"


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.txt")), ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    head, _, expected = path.read_text(encoding="utf-8").partition(LINE)
    schedule = parse(head)
    outcome = run(schedule)
    assert not outcome.violations
    assert sum(outcome.faults.values()) == len(schedule.faults), "a fault does nothing: its moment never comes"
    now = told(schedule, outcome)
    if request.config.getoption("record"):
        path.write_text(f"{head}{LINE}{now}", encoding="utf-8")
    elif now != expected:
        difference = difflib.unified_diff(
            expected.splitlines(), now.splitlines(), "as it is written", "as it goes", lineterm="", n=2
        )
        again = "if that is right, `pytest tests/simulation/test_stories.py --record` writes it anew"
        pytest.fail("\n".join((f"the story {path.stem} goes another way; {again}", *difference)), pytrace=False)


def test_each_story_says_what_it_is_about_and_that_its_trace_was_recorded() -> None:
    stories = sorted(STORIES.glob("*.txt"))
    assert len(stories) >= 12
    for path in stories:
        head, line, trace = path.read_text(encoding="utf-8").partition(LINE)
        assert head.startswith("# "), f"{path.stem}: its first line says what it is about"
        assert line and trace, f"{path.stem}: no trace; record it"
