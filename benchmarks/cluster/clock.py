"""An asyncio event loop on a virtual clock: what waits for a time does not wait, the clock goes there at once.

The product's coroutines (the node manager's) run on it as they are. Nothing else may be waited for: no sockets, no
processes, no threads.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LATE = 1e-9
"""Seconds by which a timer fires after its time. Real ones are late, too: after a wait until a moment, that moment has
come, although sums of floating-point numbers are not exact."""


class StoodStill(Exception):
    """Everything waits for something that will not come; nothing is due any more."""


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]  # it is chosen when Python starts
    """Where the loop would sleep until its next timer, this one moves the clock there."""

    moved: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[Any]:  # Any: as its base has it
        """Nothing is ever ready; time passes."""
        self.moved(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 0 s."""

    def __init__(self) -> None:
        self._virtual = 0.0
        selector = _Selector()
        selector.moved = self._moved
        super().__init__(selector)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._virtual

    def _moved(self, timeout: float | None) -> None:
        if timeout is None:
            raise StoodStill(f"at {self._virtual:g} s nothing is due any more")
        if timeout > 0:
            self._virtual += timeout + LATE


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine to its end, in no time. Raises StoodStill."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
