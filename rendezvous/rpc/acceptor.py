"""Takes the connections of one listening socket, a few at each turn of the event loop.

asyncio's own servers try as many accepts at a turn as peers may wait, and print a traceback for each of them where
this process has no descriptor left. Here nothing is accepted for a while then; peers wait in the kernel's queue, and
none of them is refused.
"""

import asyncio
import socket
from collections.abc import Callable

AT_A_TURN = 16
"""Connections; then it is the turn of everything else that this process does."""

PAUSE = 1.0
"""Seconds without accepting, where the machine or this process has no room for one more."""

REPORT_SECONDS = 60.0
"""Between two reports of that."""


class Acceptor:
    """Accepts until it is closed.

    Args:
        listening: the socket; closed with this.
        short: is told now and then that none can be accepted.
    """

    def __init__(
        self, listening: socket.socket, take: Callable[[socket.socket], None], short: Callable[[OSError], None]
    ) -> None:
        self.listening = listening
        self._take = take
        self._short = short
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._told_at: float | None = None
        self._closed = False

    def start(self, backlog: int) -> None:
        """From now on `take` is called. Raises OSError, and then the socket is closed."""
        self.listening.setblocking(False)
        try:
            self.listening.listen(backlog)
        except OSError:
            self._closed = True
            self.listening.close()
            raise
        self._loop.add_reader(self.listening, self._accept)

    def close(self) -> None:
        """Who connects from now on is refused."""
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self.listening)
        self.listening.close()

    def _accept(self) -> None:
        for _ in range(AT_A_TURN):
            if self._closed:
                return
            try:
                accepted, _ = self.listening.accept()
            except ConnectionAbortedError:
                continue
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._wait(error)
                return
            accepted.setblocking(False)
            self._take(accepted)

    def _wait(self, error: OSError) -> None:
        """The kernel reports the waiting connection as long as it waits, so nothing is asked for a while."""
        self._loop.remove_reader(self.listening)
        self._pause = self._loop.call_later(PAUSE, self._resume)
        now = self._loop.time()
        if self._told_at is None or now - self._told_at >= REPORT_SECONDS:
            self._told_at = now
            self._short(error)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self.listening, self._accept)
