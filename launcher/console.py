"""Lines for a person, from a command that runs no agent; an agent's go through its own output."""

import os
import select
import signal
import sys

from ..rendezvous.base.visible import visible_lines

REFUSED = 2
"""Exit code of a command that cannot be run; nothing was started."""


def end_unread(code: int = 0) -> None:
    """Ends this process where whoever read its output, `head` say, has seen enough: quietly, as SIGPIPE would."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        os._exit(code or 128 + signal.SIGPIPE)


def say(text: str, *, command: str = "elastic-run") -> None:
    """Prints `text` to stderr; each line begins with the command's name."""
    sys.stderr.writelines(f"[{command}] {line}\n" for line in visible_lines(text))
    sys.stderr.flush()


def refuse(sentence: str, *, command: str = "elastic-run") -> int:
    """Prints why the command cannot be run; the exit code."""
    say(sentence, command=command)
    return REFUSED
