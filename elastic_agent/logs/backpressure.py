"""While too much waits to be written, nothing more is read of what workers and services print."""

from collections.abc import Callable

from ...rendezvous.base.frozen import dataclass
from .output import Output


@dataclass(eq=False, repr=False)
class Backpressure:
    """Of one set of readers.

    Args:
        output: where what they read goes.
        stop: stops all of them.
        again: has all of them read again.

    Attributes:
        stopped: nothing is read now.
    """

    _output: Output
    _stop: Callable[[], None]
    _again: Callable[[], None]
    stopped: bool = False

    def look(self) -> None:
        """One of them has read something."""
        if self._output.full and not self.stopped:
            self.stopped = True
            self._stop()
            self._output.when_room(self._room)

    def _room(self) -> None:
        self.stopped = False
        self._again()
