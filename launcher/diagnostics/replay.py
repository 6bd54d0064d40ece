"""`elastic-run replay FILE...`: repeats the decisions that a job's master has recorded, and prints where they differ.

A history (`--trace`) holds the events of a master and what it decided on each. The controller is pure, so this version
comes to the same decisions, unless it decides differently today or the file was changed: a report of a bug is a file.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...master import history
from ...rendezvous.base.visible import visible
from ...rendezvous.host.named_files import read_named
from ...rendezvous.wire.values import Malformed
from ..errors import UsageError

_USAGE = "elastic-run replay FILE.history [FILE.history ...]"

SAME, DIFFERENT = 0, 1
"""Exit codes; 2, as everywhere, is for input that cannot be used."""

LONGEST = 400
"""Characters of a decision that are printed."""

_WRONG = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
UNREADABLE = (Malformed, *_WRONG)
"""What comes of a file that no master has written."""

MOST = 20
"""Differences that are printed of one file; the rest is counted."""


def main(words: Sequence[str], _: Mapping[str, str] | None = None) -> int:
    """Replays each file, and returns the exit code. Raises UsageError for a file that holds no history."""
    if words and words[0] in ("-h", "--help"):
        sys.stdout.write(f"{_USAGE}\n\n{__doc__}")
        return SAME
    if not words or any(word.startswith("-") for word in words):
        raise UsageError(f"write {_USAGE}: with --trace=FILE a job's master records FILE.N.history")
    found = [_replayed(Path(word)) for word in words]
    return DIFFERENT if any(found) else SAME


def _replayed(file: Path) -> int:
    """How often it differs."""
    lines = _lines(file)
    decisions = sum(b'"kind":"Publish"' in line for line in lines)
    differences = 0
    try:
        for each in history.replay(lines):
            differences += 1
            if differences <= MOST:
                _tell(file, each, lines[each.line - 1])
    except UNREADABLE as error:
        raise UsageError(
            f"{file} is no history that this version can read ({_short(str(error))}): replay it with the version of "
            "elastic-run that recorded it"
        ) from None
    if not differences:
        sys.stdout.write(
            f"{_name(file)}: {len(lines)} lines, {decisions} headers published: every decision is made again\n"
        )
    elif differences > MOST:
        sys.stdout.write(f"{_name(file)}: {differences - MOST} more differences\n")
    return differences


def _lines(file: Path) -> Sequence[bytes]:
    """Raises UsageError."""
    try:
        text = read_named(file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}: name a file that --trace has written, ending in .history"
        ) from None
    lines = text.split(b"\n")
    whole, cut = lines[:-1], lines[-1]
    if cut:  # the master was killed while it wrote
        sys.stdout.write(f"{_name(file)}: its last line is not whole and is left out\n")
    if not whole or b'"kind":"Begin"' not in whole[0]:
        raise UsageError(f"{file} is no history: name a file that --trace has written, ending in .history")
    return whole


def _tell(file: Path, difference: history.Difference, event: bytes) -> None:
    sys.stdout.write(f"{_name(file)}:{difference.line}: on {_short(event.decode(errors='replace'))}\n")
    for name, effects in (("recorded", difference.recorded), ("now", difference.now)):
        for effect in effects or ("nothing",):
            sys.stdout.write(f"  {name}: {_short(effect)}\n")


def _name(file: Path) -> str:
    return visible(str(file))


def _short(text: str) -> str:
    """Printable, and not longer than a person reads."""
    shown = visible(text)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
