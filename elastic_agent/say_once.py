"""Lines that would be repeated: at each turn of a loop, or by each worker."""

from collections.abc import Callable

from ..master.machine.incident import likeness
from ..rendezvous.member import Exit
from .workers.failure import describe


class SayOnce:
    """Prints the line of a topic when it is another one than before.

    Args:
        say: prints one line for a person.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: dict[str, str] = {}

    def __call__(self, topic: str, line: str) -> None:
        if line and self._said.get(topic) != line:
            self._say(line)
        self._said[topic] = line


class ExitLines:
    """Says how workers ended, a line for each; the error that several of two rounds have is told once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[str, int] = {}  # of an error, by its likeness: the last round that had it

    def __call__(self, exit_: Exit) -> None:
        error = exit_.brief
        if exit_.message and (like := likeness(exit_)):
            error = "the same error again" if self._told.get(like, -1) >= exit_.round - 1 else error
            self._told = {known: round for known, round in self._told.items() if round >= exit_.round - 1}
            self._told[like] = exit_.round
        self._say(f"{describe(exit_)} after {exit_.seconds:.1f} s{f': {error}' if error else ''}")
