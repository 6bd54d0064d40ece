"""Texts from elsewhere on a terminal: the one function through which they go.

A host name, a reason, a traceback, a key or a value of the store may have been written by anybody who reaches the
store or a port. On a terminal a control character in it is a command (it moves the cursor, sets the title, answers in
the user's name), and a line feed begins what looks like a line of ours. So each is shown as its escape.
"""

import re

_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")

CONTINUED = "| "
"""Begins each further line of a text of several, so that none of them looks like a line of its own."""


def visible(text: str, *, colours: bool = False) -> str:
    r"""`text` as one line in which nothing but tabs is a control character: a line feed becomes `\n`, others `\x1b`.

    What reverses the direction of writing, half characters and unusual spaces are escaped, too.

    Args:
        colours: escape sequences that only choose a colour stay.
    """
    if text.isprintable():
        return text
    if colours:
        parts = _COLOUR.split(text)
        return "".join(part if index % 2 else visible(part) for index, part in enumerate(parts))
    return "".join(map(_shown, text))


def visible_lines(text: str) -> list[str]:
    """`text`, which may be meant to have several lines; each but the first begins with CONTINUED."""
    first, *others = text.split("\n")
    return [visible(first), *(f"{CONTINUED}{visible(line)}" for line in others)]


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return ascii(character)[1:-1]
