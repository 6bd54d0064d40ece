"""What one worker prints: its end is a pipe, or a pseudo-terminal where a terminal of the launcher's shows that stream.

A worker reads of it what it would read of the launcher's own terminal, and gets it as no controlling terminal. The
bytes come as they were written: the kernel adds no carriage return.
"""

import asyncio
import contextlib
import fcntl
import os
import select
import termios
from collections.abc import Callable

from ..logs.drawn_rows import plain
from ..logs.output import Lines, Output
from ..logs.routes import StreamName

TAIL_BYTES = 64 << 10
"""Of each worker's stderr and stdout, kept in memory to explain its end."""

_SPAN_SECONDS, _MOST_READS, _SMALL_BYTES = 0.05, 50, 1 << 10
_PAUSE_SECONDS = 0.005
"""Whoever prints more small portions than that in a span is read once in a pause: waking up costs more than a line."""

_TERMINAL_BYTES = 128 << 10  # more than a pseudo-terminal holds
_F_GETPIPE_SZ = 1032


def keep_tail(tail: bytearray, data: bytes) -> None:
    """`data` comes after it. It may grow to twice its size, so that it is seldom moved."""
    tail += data
    if len(tail) > 2 * TAIL_BYTES:
        del tail[:-TAIL_BYTES]


class Printed:
    """The reading end of one worker's stdout or stderr."""

    def __init__(self, descriptor: int, lines: Lines) -> None:
        os.set_blocking(descriptor, False)
        self._is_terminal = os.isatty(descriptor)
        self.descriptor = descriptor
        self.lines = lines
        self.closed = False
        self.size = 0  # bytes that came so far
        self._tail = bytearray()
        self._since, self._reads, self._span_size = 0.0, 0, 0  # of the present span: its reads, and what they gave
        self._later: asyncio.TimerHandle | None = None

    @property
    def tail(self) -> bytes:
        """The end of what came."""
        tail = bytes(self._tail[-TAIL_BYTES:])
        return plain(tail) if self._is_terminal else tail

    @property
    def cut(self) -> int:
        """Bytes that came before the tail."""
        return max(0, self.size - TAIL_BYTES)

    def resize(self, size: os.terminal_size) -> None:
        """The launcher's terminal has that size now."""
        if self._is_terminal and not self.closed:
            with contextlib.suppress(termios.error):
                termios.tcsetwinsize(self.descriptor, (size.lines, size.columns))

    def read(self) -> int:
        """Take what is there, at most one portion; returns its size, 0 where there is nothing (or it was closed)."""
        try:
            data = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0
        keep_tail(self._tail, data)
        self.size += len(data)
        self.lines.feed(data)
        return len(data)

    def listen(self, after_read: Callable[[], None]) -> None:
        """From now on take what comes, and call that each time."""
        if not self.closed:
            asyncio.get_running_loop().add_reader(self.descriptor, self._read, after_read)

    def rest(self) -> None:
        """Take nothing until `listen`."""
        asyncio.get_running_loop().remove_reader(self.descriptor)
        if self._later is not None:
            self._later.cancel()

    def _read(self, after_read: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if (now := loop.time()) - self._since >= _SPAN_SECONDS:
            self._since, self._reads, self._span_size = now, 0, 0
        self._reads += 1
        self._span_size += self.read()
        if self._reads > _MOST_READS and self._span_size < self._reads * _SMALL_BYTES and not self.closed:
            self.rest()
            self._later = loop.call_later(_PAUSE_SECONDS, self.listen, after_read)
        after_read()

    def drain(self) -> None:
        """Take all that a worker which has ended may have left: as much as the pipe holds, and no more than that."""
        if self.closed:
            return
        rest = _TERMINAL_BYTES if self._is_terminal else fcntl.fcntl(self.descriptor, _F_GETPIPE_SZ)
        while rest > 0 and not self.closed and (size := self.read()):
            rest -= size

    def follow(self, lines: Lines) -> None:
        """What comes from now on goes there: the worker has another rank."""
        self.lines.close()
        self.lines = lines
        if self.closed:
            lines.close()

    @property
    def ended(self) -> bool:
        """Nobody can write to it any more."""
        if self.closed:
            return True
        poll = select.poll()
        poll.register(self.descriptor, 0)
        return any(events & select.POLLHUP for _, events in poll.poll(0))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.rest()
            os.close(self.descriptor)
            self.lines.close()


def open_stream(
    output: Output, round: int, rank: int, local_rank: int, stream: StreamName, undo: contextlib.ExitStack
) -> tuple[Printed, int]:
    """Our reading end, which `undo` closes, and the worker's writing end, which the caller closes; OSError."""
    lines = output.open(round, rank, local_rank, stream)
    size = output.terminal_size(local_rank, stream)
    try:
        reading, writing = os.pipe2(os.O_CLOEXEC) if size is None else os.openpty()
    except OSError:  # a machine has only so many pseudo-terminals
        reading, writing = os.pipe2(os.O_CLOEXEC)
    made = Printed(reading, lines)
    undo.callback(made.close)
    if size and os.isatty(writing):
        mode = termios.tcgetattr(writing)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(writing, termios.TCSANOW, mode)
        with contextlib.suppress(OSError):  # nobody types there: to read (`less` does) fails as on a pipe, never waits
            only = os.open(os.ttyname(writing), os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
            os.dup2(only, writing, inheritable=False)
            os.close(only)
        made.resize(size)
    return made, writing
