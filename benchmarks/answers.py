"""What the scripts of a run answer: one JSON value each, in a file that appears when it is whole."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .arena import POLL_SECONDS, Arena
from .launchers import BARE, SCRIPTS

PLAIN = "plain_work.py"


def answers(arena: Arena, count: int, bound: float, pause: float = POLL_SECONDS) -> list[Any]:
    """Waits for `answer0` to `answer<count - 1>` in the run's folder, as `Arena.until`; what each holds."""
    files = [arena.folder / f"answer{rank}" for rank in range(count)]
    arena.until(lambda: all(file.exists() for file in files) or None, bound, pause)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def plain_work(arena: Arena, steps: int, rounds: int, rest: float, settle: float = 0.0) -> tuple[str, ...]:
    """The script of workers without a framework: so many steps of so many rounds of arithmetic, and seconds of rest.

    It rests after them, and for `settle` seconds before it is ready for them.
    """
    return (str(SCRIPTS / PLAIN), arena.journal.path.name, ".", *map(str, (steps, rounds, rest, settle)))


def one_answer(arena: Arena, script: str, words: Sequence[str], bound: float, python: Path | None = None) -> Any:
    """Runs a script whose last argument is the file for its answer, without any launcher. Raises DidNotCome.

    Args:
        arena: where it runs.
        script: its name in `scripts/`.
        words: its other arguments.
        bound: seconds that it may take.
        python: the interpreter; None: this one.
    """
    command = [str(python or sys.executable), str(SCRIPTS / script), *words, str(arena.folder / "answer0")]
    arena.start(command, arena.environment(BARE), "script.log")
    return answers(arena, 1, bound)[0]
