"""Recorded transcripts: what a decider is told, and what it answers, in text files that read as a story.

    # What this shows, in one sentence.
    command word ... option=value ... -> what it prints
    command word ...
        what it prints, where that is
        too long for one line

A file belongs to one decider (its folder) and begins afresh. `pytest --record tests/unit` writes the output in all
files anew: a deliberate change is that command and the review of the difference. Without it each difference fails, and
so does a command whose output was never recorded.
"""

import dataclasses
import difflib
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FOLDER = Path(__file__).parent
INDENT, ARROW, WIDTH = "    ", " -> ", 120
OPTION = re.compile(r"([a-z][a-z0-9-]*)=(.*)", re.DOTALL)


Value = TypeVar("Value", bound="DataclassInstance")


@dataclass(slots=True)
class Command:
    """One line: its name, its words, and its options; all of them are to be taken."""

    name: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def read(cls, text: str) -> "Command":
        """Raises ValueError."""
        name, *rest = shlex.split(text)
        found = [OPTION.fullmatch(word) for word in rest]
        options = {match[1]: match[2] for match in found if match}
        if len(options) < sum(map(bool, found)):
            raise ValueError("an option stands twice")
        return cls(name, [word for word, match in zip(rest, found, strict=True) if not match], options)

    def take(self, option: str, default: str = "") -> str:
        """The value of an option, as text."""
        return self.options.pop(option, default)

    def number(self, option: str, default: float = 0.0) -> float:
        """The value of an option, as a number."""
        return float(self.options.pop(option, default))

    def count(self, option: str, default: int = 0) -> int:
        """The value of an option, as a whole number."""
        return int(self.options.pop(option, default))

    def flag(self, word: str) -> bool:
        """Whether the word stands there."""
        found = word in self.words
        self.words = [each for each in self.words if each != word]
        return found

    def rest(self) -> list[str]:
        """All words that are left."""
        words, self.words = self.words, []
        return words

    def change(self, value: Value, **names: str) -> Value:
        """`value` with what options and words of its fields' names say; `names`: what some fields are called here."""
        changes: dict[str, object] = {}
        for each in dataclasses.fields(value):
            name, before = names.get(each.name, each.name.replace("_", "-")), getattr(value, each.name)
            if isinstance(before, bool):
                changes[each.name] = self.flag(name) or before
            elif name in self.options and isinstance(before, int | float | str):
                changes[each.name] = type(before)(self.take(name))
        return dataclasses.replace(value, **changes)


Handler = Callable[[Command], Iterable[str]]
"""Carries a command out, and gives the lines that it prints."""


def transcripts(decider: str) -> pytest.MarkDecorator:
    """Gives a test the path of each transcript of a decider."""
    paths = sorted((FOLDER / decider).glob("*.txt"))
    assert paths, f"{decider} has no transcript"
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def replay(path: Path, handler: Handler, request: pytest.FixtureRequest) -> None:
    """Carries the commands of a file out, and compares what they print; with --record, writes it anew."""
    file, lines = path.relative_to(FOLDER.parents[1]), path.read_text(encoding="utf-8").splitlines()
    written: list[str] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(INDENT):
            continue
        text, _, output = line.partition(ARROW)
        if not line or line.startswith("#"):
            written.append(line)
            continue
        expected = ([output] if output else []) + recorded(lines[number:])
        printed = carry_out(handler, text, f"{file}:{number}")
        if printed != expected:
            wrong += [
                f"{file}:{number}: {text}",
                *(each for each in difflib.ndiff(expected, printed) if each[0] != "?"),
            ]
        short = f"{text}{ARROW}{' '.join(printed)}"
        fits = len(printed) == 1 and len(short) <= WIDTH
        written += [short] if fits else [text, *(INDENT + each for each in printed)]
    assert len(written) > sum(not line or line.startswith("#") for line in written), f"{file} holds no command"
    if request.config.getoption("record"):
        path.write_text("\n".join((*written, "")), encoding="utf-8")
    elif wrong or written != lines:
        again = "if that is right, `pytest --record tests/unit` records it anew"
        pytest.fail("\n".join((*(wrong or [f"{file}: it is not written as it is recorded"]), again)), pytrace=False)


def recorded(lines: list[str]) -> list[str]:
    """The output with which some lines begin."""
    end = next((index for index, line in enumerate(lines) if not line.startswith(INDENT)), len(lines))
    return [line.removeprefix(INDENT) for line in lines[:end]]


def carry_out(handler: Handler, text: str, where: str) -> list[str]:
    """What one command prints; what goes wrong says where it stands."""
    try:
        command = Command.read(text)
        lines = list(handler(command))
        assert not command.options and not command.words, f"unknown: {command.words} {command.options}"
        assert all(lines), "it prints an empty line"
    except Exception as error:
        error.add_note(f"{where}: {text}")
        raise
    return lines
