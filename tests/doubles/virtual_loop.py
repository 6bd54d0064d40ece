"""An event loop on a clock that jumps.

The clock moves only when nothing else can happen, so a minute passes at once, and a wait without end is an error.
"""

import asyncio
import selectors


class Selector(selectors.SelectSelector):
    """Never sleeps: when nothing is ready the clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits, and nothing will ever happen again")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on that clock."""

    def __init__(self) -> None:
        self._virtual = Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def takes(self, seconds: float) -> None:
        """What is done now takes so long."""
        self._virtual.now += seconds
