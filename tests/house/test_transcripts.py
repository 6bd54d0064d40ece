"""A transcript fails where it is not as recorded, and is recorded only when that is asked for."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ..transcripts import runner
from ..transcripts.runner import Command, replay

WRITTEN = "# It says.\nsay 3 -> 3\n\nsay\nsay 6 3\n    6\n    3\n"


def on(command: Command) -> Iterator[str]:
    """Says the words of a command, one a line."""
    yield from command.rest()


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
        (WRITTEN.replace("-> 3", "-> 4"), "file.txt:2: say 3\n- 4\n+ 3\n"),
        (WRITTEN.replace(" -> 3", ""), "file.txt:2: say 3\n+ 3\n"),
        (WRITTEN.replace(" -> 3", "\n    3"), "file.txt: it is not written as it is recorded"),
        (WRITTEN.removesuffix("    3\n"), "file.txt:5: say 6 3\n  6\n+ 3\n"),
        (WRITTEN + "    4\n", "file.txt:5: say 6 3\n  6\n  3\n- 4\n"),
        (WRITTEN.replace("say\n", "say -> 0\n"), "file.txt:4: say\n- 0\n"),
        ("    1\n" + WRITTEN, "file.txt: it is not written as it is recorded"),
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


@pytest.mark.parametrize("text", ["", "# No command.\n", "say 1 a=2 -> 1\n", "say a=1 a=1\n"])
def test_what_cannot_be_read_fails_also_where_it_is_recorded(tmp_path: Path, text: str) -> None:
    with pytest.raises((ValueError, AssertionError)):
        told(tmp_path, text, record=True)


def test_every_transcript_is_replayed() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (runner.FOLDER.parent / "unit").rglob("test_*.py"))
    folders = {file.parent.name for file in runner.FOLDER.rglob("*.txt")}
    assert folders == {name for name in folders if f'@transcripts("{name}")' in sources} and len(folders) >= 5
