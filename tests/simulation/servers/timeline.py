"""Virtual time: what is to happen, one after the other."""

import heapq
from collections.abc import Callable

Happening = Callable[[], object]

MOST_HAPPENINGS = 2_000_000
"""In one run; more are a loop that does not end."""


class Timeline:
    """What is to happen.

    Attributes:
        now: seconds since the beginning.
        count: what has happened so far.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0
        self._entered = 0
        self._waiting: list[tuple[float, int, Happening]] = []

    def after(self, seconds: float, happening: Happening) -> None:
        """It happens so much later; what is to happen at one moment does in the order in which it was entered."""
        self._entered += 1
        heapq.heappush(self._waiting, (self.now + seconds, self._entered, happening))

    def run(self, over: Callable[[], bool], end: float) -> bool:
        """Goes on until `over` says so, or the time is `end`. Whether it was over."""
        while self._waiting and not over():
            if self._waiting[0][0] > end:
                break
            self.now, _, happening = heapq.heappop(self._waiting)
            self.count += 1
            if self.count > MOST_HAPPENINGS:
                raise RuntimeError(f"{self.count} things have happened until {self.now:.3f}: this does not end")
            happening()
        return over()
