"""Which server answers for which id, by one slot table: what a worker sends is split by that (no I/O)."""

import itertools

import numpy as np

from ...master.servers.slot_table import SlotTable
from ...rendezvous.base.frozen import dataclass
from . import kernels
from .server_events import Array


@dataclass(frozen=True, slots=True)
class GroupedIds:
    """Ids in the order of the servers that answer for them.

    Attributes:
        ids: (n,) int64.
        order: (n,) int64: which of those that were given each of `ids` is.
        ends: where in `ids` those of each server end.
    """

    ids: Array
    order: Array
    ends: tuple[int, ...]

    def take_part(self, array: Array, server: int) -> Array:
        """That server's part of an array in the order of `ids`; no copy."""
        return array[self.ends[server - 1] if server else 0 : self.ends[server]]

    def share_count(self, count: int) -> list[int]:
        """`count`, divided among the servers as the ids are; the first server's where there are no ids."""
        total = len(self.ids)
        ends = [count * end // total if total else count for end in self.ends]
        return [end - before for before, end in itertools.pairwise([0, *ends])]

    def reorder_rows(self, rows: Array) -> Array:
        """Rows (n, columns) of the ids as they were given, in the order of `ids`."""
        out = np.empty_like(rows)
        bits = np.uint16 if rows.itemsize == 2 else rows.dtype  # numba has no float16
        kernels.gather_rows(rows.view(bits), self.order, out.view(bits))
        return out

    def find_places(self) -> Array:
        """(n,) int64: where in `ids` each of those that were given is."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places))
        return places


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
        indices = sorted(set(table.primary))
        self.servers = tuple(table.servers[index] for index in indices)
        self._holders = np.searchsorted(indices, np.array(table.primary))

    def group_ids(self, ids: Array) -> GroupedIds:
        """These ids (int64), each server's together."""
        order, ends = np.empty(len(ids), np.int64), np.zeros(len(self.servers), np.int64)
        kernels.split_ids(ids, self._holders, order, ends)
        return GroupedIds(ids[order], order, tuple(ends.tolist()))
