"""Lines that a loop would repeat at each turn."""

from collections.abc import Callable


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
