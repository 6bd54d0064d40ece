"""What keys do to a watched status: whose log or stacks are seen, and from which line on (pure)."""

from collections.abc import Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass, replace

What = Literal["job", "log", "stacks"]

HELP = "l log  s stacks  n/p, 0-9 Enter other rank  up/down  r again  Esc job  q quit"
"""Fits into a terminal of 80 columns."""

OBSERVER_KEYS = frozenset(("q", "up", "down", "page up", "page down"))
"""Those of who may see the job, and no log or stacks."""

OBSERVER_HELP = "up/down  q quit   (logs and stacks are not shown to observers)"

MOST_DIGITS = 6
"""Of a rank that is typed."""

ESCAPES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
"""What terminals send for keys that have no character."""


@dataclass(frozen=True, slots=True)
class View:
    """What is seen.

    Attributes:
        what: the job, or the log or the stacks of `rank`.
        typed: digits of the rank that is being chosen.
        up: lines by which the text is scrolled: from the end of a log, else from the beginning.
        asked: counts how often it was wanted anew.
    """

    what: What = "job"
    rank: int = 0
    typed: str = ""
    up: int = 0
    asked: int = 0


def split(data: str) -> Sequence[str]:
    """The keys that a terminal has sent at once."""
    found = list[str]()
    while data:
        name = next((each for each in ESCAPES if data.startswith(each)), "")
        if name:
            found.append(ESCAPES[name])
            data = data[len(name) :]
        elif data.startswith(("\x1b[", "\x1bO")):  # another key: its letters are no keys of their own
            end = next((at for at, each in enumerate(data[2:], 3) if each.isalpha() or each == "~"), len(data))
            data = data[end:]
        else:
            found.append(
                {"\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "back", "\x08": "back"}.get(data[0], data[0])
            )
            data = data[1:]
    return found


def press(view: View, key: str, world_size: int, page: int = 10) -> View | None:
    """What is seen after a key; None: it is over.

    Args:
        world_size: ranks that there are.
        page: lines of a screen.
    """
    last = max(0, world_size - 1)
    if key.isdecimal() and key.isascii():
        return replace(view, typed=(view.typed + key)[-MOST_DIGITS:])
    match key:
        case "q":
            return None
        case "escape" if view.typed:
            return replace(view, typed="")
        case "escape":
            return View(rank=view.rank, asked=view.asked)
        case "back":
            return replace(view, typed=view.typed[:-1])
        case "enter" if view.typed:
            return _of(view, "log" if view.what == "job" else view.what, min(int(view.typed), last))
        case "l" | "s":
            rank = min(int(view.typed) if view.typed else view.rank, last)
            return _of(view, "log" if key == "l" else "stacks", rank)
        case "n" | "p" if view.what != "job":
            return _of(view, view.what, min(max(0, view.rank + (1 if key == "n" else -1)), last))
        case "r":
            return _of(view, view.what, view.rank)
        case "up" | "down" | "page up" | "page down":
            by = (page if "page" in key else 1) * (1 if key.endswith("up") == (view.what == "log") else -1)
            return replace(view, up=max(0, view.up + by))
        case _:
            return view


def _of(view: View, what: What, rank: int) -> View:
    return View(what, rank, "", 0, view.asked + 1)


def wrap(lines: Sequence[str], width: int) -> Sequence[str]:
    """As many lines as a screen of that width needs for them; what goes on is indented."""
    found = list[str]()
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        found.append(line[:width])
        room, rest = max(1, width - len(indent)), line[width:]
        found += [indent + rest[at : at + room] for at in range(0, len(rest), room)]
    return found


def fit(lines: Sequence[str], height: int, up: int, *, from_end: bool) -> tuple[Sequence[str], int]:
    """The lines that a screen of `height` has room for, and by how many of those that there are it is scrolled."""
    up = min(up, max(0, len(lines) - height))
    if from_end:
        end = len(lines) - up
        return lines[max(0, end - height) : end], up
    return lines[up : up + height], up
