"""A transcript fails where it is not as recorded, and is recorded only when that is asked for."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ..transcripts import runner
from ..transcripts.runner import Command, replay

WRITTEN = "# It adds.\nadd 1 2\n    3\n\nadd 0\nadd 3\n    3\n"


def on(command: Command) -> Iterator[str]:
    """Adds the words of a command up; 0 is not printed."""
    total = sum(map(int, command.rest()))
    yield from [str(total)] if total else []


def told(folder: Path, text: str, *, record: bool = False) -> str:
    """What the file says when it is replayed; raises what the replay raises."""
    path = folder / "tests" / "transcripts" / "sums" / "file.txt"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    config = SimpleNamespace(getoption={"record": record}.__getitem__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "FOLDER", path.parents[1])
        replay(path, on, cast(pytest.FixtureRequest, SimpleNamespace(config=config)))
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        (WRITTEN.replace("3\n\n", "4\n\n"), "file.txt:2: add 1 2\n- 4\n+ 3\n"),
        (WRITTEN.removesuffix("    3\n"), "file.txt:6: add 3\n+ 3\n"),
        (WRITTEN + "    4\n", "file.txt:6: add 3\n  3\n- 4\n"),
        (WRITTEN.replace("add 0\n", "add 0\n    0\n"), "file.txt:5: add 0\n- 0\n"),
        ("    1\n" + WRITTEN, "file.txt: output without a command"),
    ],
)
def test_what_is_not_as_recorded_fails_and_is_recorded_where_that_is_asked_for(
    tmp_path: Path, text: str, difference: str
) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        told(tmp_path / "as it is", text)
    assert difference in str(failed.value)
    assert told(tmp_path / "recorded", text, record=True) == WRITTEN
    assert told(tmp_path / "again", WRITTEN) == WRITTEN


@pytest.mark.parametrize("text", ["", "# No command.\n", "add 1 a=2\n    1\n", "add a=1 a=1\n"])
def test_what_cannot_be_read_fails_also_where_it_is_recorded(tmp_path: Path, text: str) -> None:
    with pytest.raises((ValueError, AssertionError)):
        told(tmp_path, text, record=True)
