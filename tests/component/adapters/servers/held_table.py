"""One table as a server holds it, and all that its rows are."""

from typing import Any

import numpy as np

from elastic_run.adapters.servers import kernels
from elastic_run.adapters.servers.server_events import Array
from elastic_run.adapters.servers.specs import TableSpec
from elastic_run.adapters.servers.tables import Tables, apply_parts, find_parts
from elastic_run.master.servers.slot_table import SLOTS

ALL_SLOTS = np.ones(SLOTS, np.bool_)


def slot_of(id_: int) -> int:
    return int(kernels.slot_of(np.int64(id_)))


class Holder:
    """A server's tables, with one of them."""

    def __init__(self, spec: TableSpec) -> None:
        self.tables = Tables(1 << 24)
        self.tables.open_table(spec)
        self.spec = spec

    def push(self, ids: list[int], at: int, gradients: Array | None = None, slots: Array = ALL_SLOTS) -> None:
        """Of the ids that are of these slots."""
        if gradients is None:
            gradients = np.full((len(ids), self.spec.columns), -1.0, np.float32)
        (part,) = self.tables.read_push((self.spec.name,), [np.array(ids, np.int64), gradients], ALL_SLOTS)
        apply_parts(find_parts([part.choose_slots(slots)]), reuse=False, at=at)

    def rows(self, suffix: str = "") -> dict[int, list[Any]]:
        """All that each row is."""
        found, first, following = dict[int, list[Any]](), -1, 0
        rows = self.tables.find_table(self.spec.name + suffix)
        while first != following:
            first = following
            (ids, *parts), following = rows.copy_piece(first, ALL_SLOTS, 7)
            found |= {id_: [part[at].tolist() for part in parts] for at, id_ in enumerate(ids.tolist())}
        return found

    def all_rows(self) -> dict[str, dict[int, list[Any]]]:
        return {
            suffix: self.rows(suffix) for suffix in (("", " (waiting)", " (shared)") if self.spec.waiting else ("",))
        }

    def pull(self, ids: list[int]) -> Array:
        return self.tables.pull_rows((self.spec.name,), [np.array(ids, np.int64)], ALL_SLOTS)[0]
