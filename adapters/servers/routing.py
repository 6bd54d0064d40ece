"""Which server answers for which id, by one slot table: what a worker sends is split by that (no I/O)."""

from typing import Any

import numpy as np

from ...master.servers.slot_table import SlotTable
from ...rendezvous.base.frozen import dataclass
from . import kernels

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class GroupedIds:
    """Ids in the order of the servers that answer for them.

    Attributes:
        ids: (n,) int64.
        begins: where in `ids` those of each server begin, and where the last's end.
        places: (n,) int64: where in `ids` each is of those that were grouped.
    """

    ids: Array
    begins: tuple[int, ...]
    places: Array

    def take(self, array: Array, server: int) -> Array:
        """That server's part of an array that is ordered as `ids`; no copy."""
        return array[self.begins[server] : self.begins[server + 1]]

    def reorder(self, rows: Array) -> Array:
        """Rows (n, columns) of the ids as they were given, in the order of `ids`."""
        out = np.empty_like(rows)
        kernels.scatter_rows(rows, self.places, out)
        return out


class Routes:
    """What one slot table says to a worker.

    Args:
        table: one that serves.

    Attributes:
        table: as given.
        servers: those that answer for some slot.
    """

    def __init__(self, table: SlotTable) -> None:
        self.table = table
        held, holders = np.unique(np.array(table.primary, np.int64), return_inverse=True)
        self.servers = tuple(table.servers[index] for index in held.tolist())
        self._holders = holders.astype(np.int64)

    def group(self, ids: Array) -> GroupedIds:
        """These ids (int64), each server's together."""
        begins = np.zeros(len(self.servers) + 1, np.int64)
        grouped, places = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        kernels.group_ids(ids, self._holders, begins, grouped, places)
        return GroupedIds(grouped, tuple(begins.tolist()), places)
