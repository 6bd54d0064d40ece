"""The kinds of fields that values in the store and in requests have, with their bounds."""

import signal
from typing import Annotated, ClassVar

from .values import Tagged, Text, Within

MAX_WORDS = 4_000
"""Characters of one reason or message: it goes into the store, into the header and onto lines."""

Name = Annotated[str, Text(253, printable=True)]
"""What a node, a run or an address is called: it becomes part of keys. The longest name in DNS has 253 characters."""

Words = Annotated[str, Text(2 * MAX_WORDS)]
"""For a person. Who writes cuts at MAX_WORDS; who reads leaves room for another version's habits."""

Port = Annotated[int, Within(1, 65535)]
Number = Annotated[int, Within(0, (1 << 53) - 1)]
"""What is counted: rounds, nodes, failures."""


class Sentence(Tagged):
    """A reason whose sentence is made of its fields as they are: `words` has them as `{0.field}`."""

    __slots__ = ()
    words: ClassVar[str]

    def __str__(self) -> str:
        return self.words.format(self)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 42` for one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
