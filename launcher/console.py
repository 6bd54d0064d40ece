"""Lines for a person, from a command that runs no agent; an agent's go through its own output."""

import sys

from ..rendezvous.visible import visible_lines

REFUSED = 2
"""Exit code of a command that cannot be run; nothing was started."""


def say(text: str, *, command: str = "elastic-run") -> None:
    """Prints `text` to stderr; each line begins with the command's name."""
    sys.stderr.writelines(f"[{command}] {line}\n" for line in visible_lines(text))
    sys.stderr.flush()


def refuse(sentence: str, *, command: str = "elastic-run") -> int:
    """Prints why the command cannot be run; the exit code."""
    say(sentence, command=command)
    return REFUSED
