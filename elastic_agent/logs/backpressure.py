"""While too much waits to be written, nothing more is read of what workers and services print."""

from collections.abc import Callable

from .output import Output


class Backpressure:
    """Of one set of readers.

    Args:
        output: where what they read goes.
        stop: stops all of them.
        again: has all of them read again.

    Attributes:
        stopped: nothing is read now.
    """

    def __init__(self, output: Output, stop: Callable[[], None], again: Callable[[], None]) -> None:
        self._output = output
        self._stop = stop
        self._again = again
        self.stopped = False

    def look(self) -> None:
        """One of them has read something."""
        if self._output.full and not self.stopped:
            self.stopped = True
            self._stop()
            self._output.when_room(self._room)

    def _room(self) -> None:
        self.stopped = False
        self._again()
