"""All tables of one server: the rows, and what can be wrong with what is asked of them.

All that can be wrong is looked for before the first row changes.
"""

from collections.abc import Sequence

import numpy as np

from ...rendezvous.base.frozen import dataclass, replace
from . import frames, kernels
from .errors import TableMisused
from .managed_table import ManagedTable, TableChange
from .record_file import DiskLimit, RecordFile
from .row_memory import RowMemory, TableFull
from .row_use import SlotClocks
from .rows import Rows
from .server_events import Array, Arrays
from .slot_sets import SlotSet
from .specs import TableSpec
from .wire_numbers import WIRE_DTYPES, read_numbers, round_rows


@dataclass(frozen=True, slots=True)
class TablePart:
    """What a push has for one table: ids (int64, each once) and gradients (n, columns), as they came.

    With `managed`, not every id has a row in `rows`, or has it for ever.
    """

    rows: Rows
    ids: Array
    gradients: Array
    managed: ManagedTable | None = None

    def choose_slots(self, slots: SlotSet) -> "TablePart":
        """The ids of these slots, and their gradients."""
        chosen = _find_of(self.ids, slots)
        if len(chosen) == len(self.ids):
            return self
        return replace(self, ids=self.ids[chosen], gradients=self.gradients[chosen])


@dataclass(frozen=True, slots=True)
class FoundPart:
    """A part, and the row of each of its ids, if it has one."""

    part: TablePart
    places: Array


class Tables:
    """The tables of one server.

    Args:
        memory: bytes that all their rows may take together.
        disk: where others may be; None: nowhere.
    """

    def __init__(self, memory: int, disk: DiskLimit | None = None) -> None:
        self._memory = memory
        self._shared = RowMemory(memory, disk) if disk is not None else None
        self._tables: dict[str, Rows] = {}
        self._declared: set[str] = set()  # tables that a worker of this run has declared
        self._managed: dict[str, ManagedTable] = {}
        self._restored: dict[str, int] = {}  # by table, the checkpoint that it comes from

    @property
    def specs(self) -> tuple[TableSpec, ...]:
        """Of all, in the order in which they were opened."""
        return tuple(rows.spec for rows in self._tables.values())

    @property
    def declared_specs(self) -> tuple[TableSpec, ...]:
        """Of those that a worker has declared."""
        return tuple(spec for spec in self.specs if spec.name in self._declared)

    def list_rows(self) -> list[Rows]:
        """Of all, also while another thread opens some."""
        return list(self._tables.values())

    def open_table(self, spec: TableSpec) -> int:
        """As a worker declares it: how many rows it has. Raises TableMisused, TableFull."""
        spec.check()
        found = self._tables.get(spec.name)
        if found and spec.name not in self._declared:
            found.spec = replace(found.spec, max_staleness=spec.max_staleness)  # a run may have another than the last
        count = self._open(spec)
        self._declared.add(spec.name)
        return count

    def take_table(self, spec: TableSpec) -> None:
        """As another server or a checkpoint has it. Raises TableMisused, TableFull."""
        found = self._tables.get(spec.name)
        self._open(replace(spec, max_staleness=found.spec.max_staleness) if found else spec)
        if spec.max_staleness is not None:
            self._declared.add(spec.name)

    def _open(self, spec: TableSpec) -> int:
        spec.check()
        several = [each for each in (spec, spec.waiting, spec.shared) if each is not None]
        for each in several:
            self._check_same(each)
        if spec.name not in self._tables:
            clocks = SlotClocks(spec.evict) if spec.evict is not None else None
            try:
                made = [Rows(each, self._memory, clocks, self._shared) for each in several]
            except OSError as error:
                raise TableFull(f"table {spec.name!r}: no room to reserve for its rows ({error})") from None
            self._tables |= {each.spec.name: each for each in made}
            if clocks is not None or len(made) > 1:
                self._managed[spec.name] = ManagedTable(clocks, *made)
        return self._tables[spec.name].count

    def _check_same(self, spec: TableSpec) -> None:
        if (found := self._tables.get(spec.name)) is None:
            return
        if difference := spec.describe_difference(found.spec):
            if checkpoint := self._restored.get(spec.name):
                raise TableMisused(
                    f"table {spec.name!r} comes from checkpoint {checkpoint} of an earlier run, with {difference}: "
                    "declare it as it was, or give this job another --ps-checkpoint folder or --rdzv-id"
                )
            raise TableMisused(
                f"table {spec.name!r} is there already, with {difference}: declare it the same on every rank"
            )

    def note_restored(self, checkpoint: int) -> None:
        """What there is now comes from that checkpoint."""
        self._restored = dict.fromkeys(self._tables, checkpoint)

    def find_table(self, name: str) -> Rows:
        """Raises TableMisused."""
        if (found := self._tables.get(name)) is None:
            raise TableMisused(f"there is no table {name!r} here: declare it first")
        return found

    def pull_rows(self, names: Sequence[str], arrays: Arrays, slots: SlotSet) -> list[Array]:
        """The rows of those ids. Raises TableMisused."""
        tables = [self.find_table(name) for name in names]
        if len(arrays) != len(tables):
            raise TableMisused(f"a pull of {len(tables)} tables came with {len(arrays)} arrays")
        for ids in arrays:
            _check_ids(ids, slots)
        frames.check_size(
            sum(
                WIRE_DTYPES[rows.spec.dtype].itemsize * len(ids) * rows.spec.columns
                for rows, ids in zip(tables, arrays, strict=True)
            )
        )
        return [round_rows(self._read(rows, ids), rows.spec.dtype) for rows, ids in zip(tables, arrays, strict=True)]

    def _read(self, rows: Rows, ids: Array) -> Array:
        if (managed := self._managed.get(rows.spec.name)) is not None:
            return managed.read(ids)
        return rows.read(rows.find(ids), ids)

    def read_push(self, names: Sequence[str], arrays: Arrays, slots: SlotSet) -> list[TablePart]:
        """What is pushed for each table. Raises TableMisused."""
        if len(arrays) != 2 * len(names):
            raise TableMisused(f"a push of {len(names)} tables came with {len(arrays)} arrays")
        parts: list[TablePart] = []
        for name, ids, gradients in zip(names, arrays[::2], arrays[1::2], strict=True):
            rows = self.find_table(name)
            _check_ids(ids, slots)
            wanted = WIRE_DTYPES[rows.spec.dtype]
            if gradients.dtype != wanted or gradients.shape != (len(ids), rows.spec.columns):
                raise TableMisused(
                    f"table {name!r}: {len(ids)} ids have gradients of {gradients.dtype} {gradients.shape}, and not of "
                    f"{wanted} {(len(ids), rows.spec.columns)}"
                )
            check_usable(rows.spec, gradients)
            parts.append(TablePart(rows, ids, gradients, self._managed.get(name)))
        return parts

    def check_room(self, found: Sequence[FoundPart], kept: int = 0) -> None:
        """Raises TableFull where the rows that are to be made do not fit; `kept`: see `check_bytes`."""
        more = sum(each.part.rows.count_bytes(each.places) for each in found)
        if more and self._shared is not None:
            self._shared.check_heads(sum(int((each.places < 0).sum()) * each.part.rows.head_bytes for each in found))
        self.check_bytes(more, kept)
        check_fits(found, reuse=True)

    def check_prepared(self, found: Sequence[FoundPart], more: int, kept: int) -> None:
        """Raises TableFull where a rank's part of a step, which takes so many bytes, does not fit, or its rows do not.

        When all ranks have prepared the step, no server may refuse it: see `make_room`.
        """
        self.check_bytes(more, kept)
        if self._shared is not None:
            self.check_room(found, kept)
        else:
            check_fits(found, reuse=True)

    def make_room(self, found: Sequence[FoundPart]) -> None:
        """For rows that are promised to be made: as far as it goes. What came since then may have taken some of it."""
        if self._shared is not None:
            self._shared.make_room(sum(each.part.rows.count_bytes(each.places) for each in found))

    def check_count(self, rows: Rows, count: int) -> None:
        """Raises TableFull where so many rows more of this table do not fit, which may go to disk."""
        if self._shared is None:
            self.check_bytes(count * rows.row_bytes)
        else:
            self._shared.check_heads(count * rows.head_bytes)

    def check_bytes(self, more: int, kept: int = 0) -> None:
        """Raises TableFull where so many bytes do not fit, beside what is `kept` for steps that are prepared."""
        if self._shared is not None:
            if more:
                self._shared.check_room(more + kept)
            return
        taken = sum(rows.count * rows.row_bytes for rows in self._tables.values())
        if more and taken + kept + more > self._memory:
            prepared = f" and prepared steps {-(-kept >> 20)} MiB" if kept else ""
            raise TableFull(
                f"the tables take {taken >> 20} MiB{prepared}, {more >> 10} KiB more are wanted, and this server has "
                f"{self._memory >> 20} MiB for them: give servers more memory (--ps-memory) or a disk (--ps-disk), or "
                "have more of them"
            )

    def plan_reading(self, names: Sequence[str], ids: Arrays) -> list[tuple[RecordFile, Array]]:
        """What must be read from disk for a request of these ids, whatever may be wrong with it."""
        found: list[tuple[RecordFile, Array]] = []
        for name, each in zip(names, ids, strict=False):
            rows = self._tables.get(name)
            if rows is None or rows.pool is None or each.dtype != np.int64 or each.ndim != 1:
                continue
            positions = rows.pool.find_on_disk(rows.find(each))
            if len(positions):
                found.append((rows.pool.file, positions))
        return found

    @property
    def shared(self) -> RowMemory | None:
        """What all of them may take; None: nothing is on disk."""
        return self._shared

    def has_rows(self, slots: SlotSet) -> bool:
        """Whether any table has some of these slots."""
        return any(rows.has_rows(slots) for rows in self._tables.values())

    def forget_slots(self, slots: SlotSet) -> None:
        """All rows of these slots are to be removed, by `remove_some`."""
        for rows in self._tables.values():
            rows.forget_slots(slots)

    def remove_some(self) -> bool:
        """A few of the rows that are to go. Whether there are more."""
        return any(rows.remove_some() for rows in self._tables.values())  # the first that has such rows


_BOUNDED = {"float16": ", or too large for float16"}


def check_usable(spec: TableSpec, gradients: Array) -> None:
    """Raises TableMisused where some, as they go over the wire, are no finite numbers, and the table refuses such."""
    if spec.unusable == "refuse" and kernels.has_unusable(read_numbers(gradients)):
        raise TableMisused(
            f"table {spec.name!r}: a gradient is not a finite number{_BOUNDED.get(spec.dtype, '')}; nothing of this "
            "push was applied, its gradients are dropped, and its records are not marked. Compute them again, or "
            "leave such rows out, which a table with unusable='skip' does by itself"
        )


def choose_of(ids: Array, slots: SlotSet) -> Array:
    """Those of them that are of these slots."""
    return ids[_find_of(ids, slots)]


def _find_of(ids: Array, slots: SlotSet) -> Array:
    chosen = np.empty(len(ids), np.int64)
    return chosen[: int(kernels.choose_ids(ids, slots, chosen))]


def find_parts(parts: Sequence[TablePart]) -> list[FoundPart]:
    """With the row of each id."""
    return [FoundPart(part, part.rows.find(part.ids)) for part in parts]


def check_fits(found: Sequence[FoundPart], reuse: bool) -> None:
    """Raises TableFull where some of these ids have no row, and there is no place for one; `reuse`: see `Rows.make`."""
    for each in found:
        (each.part.managed or each.part.rows).check_fits(each.part.ids, reuse)


def apply_parts(found: Sequence[FoundPart], reuse: bool, at: int) -> list[TableChange]:
    """Makes the rows that are missing, and takes one step on each. What has changed in tables that are managed.

    Args:
        reuse: see `Rows.make`; managed tables do so in any case, because copies are told of each row.
        at: the time of the push, in milliseconds.

    Raises TableFull, where no row has changed and none was made.
    """
    check_fits(found, reuse)
    plain = [each for each in found if each.part.managed is None]
    made = [each.part.rows.make(each.part.ids, each.places, reuse) for each in plain]
    prepared = [
        (each.part.managed, each.part.managed.prepare_push(each.part.ids, read_numbers(each.part.gradients)))
        for each in found
        if each.part.managed is not None
    ]
    for each, places in zip(plain, made, strict=True):
        each.part.rows.apply(places, read_numbers(each.part.gradients))
    return [change for managed, push in prepared for change in managed.apply_push(push, at)]


def apply_where_present(parts: Sequence[TablePart]) -> None:
    """Takes one step on each row that there is."""
    for part in parts:
        places = part.rows.find(part.ids)
        there = np.flatnonzero(places >= 0)
        part.rows.apply(places[there], read_numbers(part.gradients[there]))


def _check_ids(ids: Array, slots: SlotSet) -> None:
    if ids.dtype != np.int64 or ids.ndim != 1:
        raise TableMisused(f"ids are {ids.dtype} of {ids.ndim} dimensions, and not int64 of one")
    if not slots.all() and not kernels.are_ids_of(ids, slots):
        raise TableMisused("some ids are of slots that are another server's in this version of the slot table")
