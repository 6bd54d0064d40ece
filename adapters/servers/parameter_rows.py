"""Parameters of a model as rows of a table: each is cut into rows, the last of which ends in zeros (pure)."""

from collections.abc import Sequence

import numpy as np

from .server_events import Array

COLUMNS = 256
"""Numbers in a row: what a row takes besides is 6 % of it, and a large layer is spread over all servers."""


class ParameterRows:
    """Which rows each parameter has. Their ids count through the whole model, from 0.

    Args:
        sizes: numbers in each parameter, in the model's order.

    Attributes:
        count: of all rows.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = tuple(sizes)
        self._ends = np.cumsum([0, *(-(-size // COLUMNS) for size in sizes)]).tolist()
        self.count = self._ends[-1]

    def list_ids(self, chosen: Sequence[int]) -> Array:
        """(n,) int64: of the rows of these parameters, one parameter after the other."""
        parts = [np.arange(self._ends[each], self._ends[each + 1], dtype=np.int64) for each in chosen]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def cut_values(self, chosen: Sequence[int], values: Sequence[Array]) -> Array:
        """(n, COLUMNS) float32: the rows of these parameters; `values`: the numbers of each, (size,) float32."""
        counts = [self._ends[each + 1] - self._ends[each] for each in chosen]
        rows = np.zeros((sum(counts), COLUMNS), np.float32)
        first = 0
        for each, count, numbers in zip(chosen, counts, values, strict=True):
            rows[first : first + count].reshape(-1)[: self._sizes[each]] = numbers
            first += count
        return rows

    def join_values(self, chosen: Sequence[int], rows: Array) -> list[Array]:
        """What `cut_values` was given; no copy."""
        found: list[Array] = []
        first = 0
        for each in chosen:
            count = self._ends[each + 1] - self._ends[each]
            found.append(rows[first : first + count].reshape(-1)[: self._sizes[each]])
            first += count
        return found
