"""What outlives the agent where a script left processes behind on purpose: it passes on what these still print.

Run by path as `python -I -S drain.py PIPE:TARGET...`. PIPE is a descriptor; TARGET is one as well, or the path of a
file to append to, or nothing. A target that takes nothing more is given up and its pipe is still read, because a closed
pipe would end whoever writes to it. The process ends when every pipe has. Standard library only, and little of it.
"""

import os
import select
import sys
from collections.abc import Sequence

NOWHERE = -1

PATIENCE_MS = 60_000
"""How long a target may take nothing before it is given up."""


def main(ways: Sequence[str]) -> int:
    """Copies until all pipes have ended; returns the exit code."""
    targets: dict[int, int] = {}
    poll = select.poll()
    for way in ways:
        pipe, _, target = way.partition(":")
        targets[int(pipe)] = _opened(target)
        poll.register(int(pipe), select.POLLIN)
    while targets:
        for pipe, _ in poll.poll():
            try:
                data = os.read(pipe, 65536)
            except OSError:  # a pseudo-terminal ends so
                data = b""
            if data:
                targets[pipe] = _written(targets[pipe], data)
            else:
                poll.unregister(pipe)
                del targets[pipe]
    return 0


def _opened(target: str) -> int:
    if not target:
        return NOWHERE
    if target.isdigit():
        return int(target)
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        return NOWHERE


def _written(target: int, data: bytes) -> int:
    """Where the next bytes go."""
    while data and target != NOWHERE:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:
            room = select.poll()
            room.register(target, select.POLLOUT)
            if not room.poll(PATIENCE_MS):
                return NOWHERE
        except OSError:
            return NOWHERE
    return target


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
