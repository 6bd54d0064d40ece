"""Free places of rows, frames or records: the last that was put there is taken first."""

import numpy as np

from .server_events import Array


class NumberStack:
    """Of int64; an array that grows."""

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def see(self, count: int) -> Array:
        """The last so many, which are taken from the end: a view."""
        return self._numbers[self._count - count : self._count]

    def drop(self, count: int) -> None:
        """The last so many are taken."""
        self._count -= count

    def put(self, numbers: Array) -> None:
        """The last of them is taken first."""
        if (count := self._count + len(numbers)) > len(self._numbers):
            longer = np.empty(max(count, 2 * len(self._numbers)), np.int64)
            longer[: self._count] = self._numbers[: self._count]
            self._numbers = longer
        self._numbers[self._count : count] = numbers
        self._count = count
