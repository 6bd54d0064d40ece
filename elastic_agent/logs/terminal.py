"""One of the launcher's own two streams, as the thread that writes (`writer.py`) knows it."""

import contextlib
import os
import select
import stat
from typing import BinaryIO

_PORTION_BYTES = 4096  # a pipe that says it has room takes this much without blocking (POSIX: PIPE_BUF)
_FILE_BYTES = 64 << 10  # a file has no reader to wait for


class Terminal:
    """One of the launcher's own streams: a terminal, a pipe, a file, or (in tests) an object in memory.

    Attributes:
        descriptor: to write to and to poll; -1 for an object in memory.
        identity: equal for two streams that are the same terminal.
        interactive: a person looks at it.
        dumb: it cannot move its cursor up.
        is_file: nobody waits for what is written there.
        source: the launcher's own descriptor of it; -1 for an object in memory.
    """

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        self.closed = False
        self.interactive = self.is_file = False
        self.dumb = os.environ.get("TERM") == "dumb"
        self.source = -1
        self._stream = stream
        self._own = -1
        self._portion = _PORTION_BYTES
        try:
            self.descriptor = stream.fileno()
            status = os.fstat(self.descriptor)
            self.identity: object = (status.st_dev, status.st_ino, status.st_rdev)
            self.interactive = os.isatty(self.descriptor)
            self.source = self.descriptor
        except (OSError, ValueError):
            self.descriptor = -1
            self.identity = id(stream)
            return
        if stat.S_ISREG(status.st_mode):
            self.is_file, self._portion = True, _FILE_BYTES
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            # Opened anew it can be non-blocking for us alone; the flag on the one we got is shared with others.
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._own = self.descriptor = os.open(f"/proc/self/fd/{self.descriptor}", flags)

    @property
    def size(self) -> os.terminal_size:
        """How wide and high it is; zeros where it does not know."""
        try:
            return os.get_terminal_size(self.descriptor)
        except (OSError, ValueError):
            return os.terminal_size((0, 0))

    @property
    def in_foreground(self) -> bool:
        """Nobody types there for another program, as after `&` or Ctrl-Z and `bg`."""
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:  # it is not the terminal that controls this process
            return True

    def has_room(self) -> bool:
        """A write would take some bytes, or fail."""
        if self.closed or self.descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def write(self, data: memoryview) -> int:
        """Write some of `data`; returns how many bytes, 0 where there is no room. Raises OSError, ValueError."""
        if self.descriptor < 0:
            self._stream.write(data)
            self._stream.flush()
            return len(data)
        try:
            return os.write(self.descriptor, data if self._own >= 0 else data[: self._portion])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Give up our own way to it; the launcher's stream stays open."""
        self.closed = True
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
