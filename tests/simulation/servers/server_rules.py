"""What must be true of a job's servers at every moment, and at its end.

The rules see what is in the servers' memory, the table in the store, and what workers were told. They never ask a
server.
"""

from collections.abc import Mapping

import numpy as np

from elastic_run.adapters.servers.marks import Marks
from elastic_run.adapters.servers.requests import PushSource
from elastic_run.adapters.servers.rows import Rows
from elastic_run.adapters.servers.server_events import ServerEvent
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, SlotTable

from .holdings import Universe, count_records, find_parts, read_marks, read_offsets, read_rows
from .server_process import Array, ServerProcess
from .slot_store import SlotStore
from .timeline import Timeline
from .trainers import COUNT, Records, slots_of

BALANCED = 2
"""Slots by which two servers may differ at the end."""


class BrokenRule(Exception):
    """A rule is broken."""

    def __init__(self, rule: str, what: str, at: float) -> None:
        super().__init__(f"{at:.4f} {rule}: {what}")
        self.rule = rule
        self.what = what


class ServerRules:
    """All of them, for one run; each raises BrokenRule."""

    def __init__(
        self,
        store: SlotStore,
        records: Records,
        processes: Mapping[str, ServerProcess],
        timeline: Timeline,
        *,
        of_stream: bool = False,
    ) -> None:
        self._store = store
        self._records = records
        self._processes = processes
        self._timeline = timeline
        self._universe: Universe = count_records(records)
        shards = len(records.ids)
        self._acknowledged = np.zeros(shards, np.int64)
        self._offsets_acknowledged = np.zeros(records.ids.shape[:2], np.bool_)
        self._of_stream = of_stream
        self._names = [
            each.name
            for spec in (records.count, records.model)
            for each in (spec, spec.waiting, spec.shared)
            if each is not None
        ]
        self._used = np.zeros(SLOTS, np.bool_)  # slots that have ids
        self._used[self._universe.slots] = True
        self._parts: dict[str, tuple[Marks, Mapping[str, Rows]]] = {}
        self._held: dict[str, tuple[SlotTable, Array | None]] = {}
        self.may_lose = False  # all holders of some slot have ended

    def fail(self, rule: str, what: str) -> None:
        """It is broken."""
        raise BrokenRule(rule, what, self._timeline.now)

    # -- servers ----------------------------------------------------------------------------------------------------

    def check_server(self, process: ServerProcess, event: ServerEvent | None = None) -> None:
        """After each event of a server: what it holds is what its marks say."""
        held = self._held_by(process)
        if held is None:
            return
        marks, tables = self._parts_of(process)
        universe = self._universe
        mine = np.flatnonzero(held[universe.slots])
        ids, slots = universe.ids[mine], universe.slots[mine]
        expected = np.zeros(len(mine), np.int64)
        if self._of_stream:
            applied = read_offsets(marks, *self._records.ids.shape[:2], held & self._used)
            for shard, counts in enumerate(universe.counts):
                expected += (applied[shard][:, slots] * np.diff(counts[:, mine], axis=0)).sum(axis=0)
        else:
            positions = read_marks(marks, *self._records.ids.shape[:2], held & self._used)
            for shard, counts in enumerate(universe.counts):
                expected += counts[positions[shard, slots], mine]
        if self._records.count.admit_after:
            self._check_sums(process, tables, slots, expected)
            return
        found = np.zeros(len(mine))
        if (rows := tables.get(COUNT.name)) is not None:
            found = rows.read(rows.find(ids), ids)[:, 0]
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            at = int(wrong[0])
            self.fail(
                "rows are what the marks say",
                f"after {type(event).__name__}, server {process.incarnation} has counted {found[at]:g} records of id "
                f"{ids[at]} in slot {slots[at]}, and its marks say {expected[at]} ({len(wrong)} of {len(mine)} ids)",
            )

    def _check_sums(self, process: ServerProcess, tables: Mapping[str, Rows], slots: Array, expected: Array) -> None:
        """In each slot, rows of ids and the row that the others share have counted all together."""
        held = np.zeros(SLOTS, np.bool_)
        held[slots] = True
        found = np.zeros(SLOTS)
        for name in (COUNT.name, f"{COUNT.name} (shared)"):
            if (rows := tables.get(name)) is not None:
                ids, values, _ = rows.read_piece(0, held)
                np.add.at(found, slots_of(ids), values[:, 0])
        wrong = np.flatnonzero(found != np.bincount(slots, expected, SLOTS))
        if len(wrong):
            self.fail(
                "rows are what the marks say",
                f"server {process.incarnation} has counted {found[wrong[0]]:g} uses of ids in slot {wrong[0]}, and its "
                f"marks say {expected[slots == wrong[0]].sum()} ({len(wrong)} slots are wrong)",
            )

    def check_acknowledged(self, source: PushSource) -> None:
        """A worker was told that a push is applied."""
        shard = source.shard_index
        if source.partition:
            shard = int(source.partition)
            self._offsets_acknowledged[shard, source.begin : source.end] = True
        else:
            self._acknowledged[shard] = max(self._acknowledged[shard], source.end)
        self._check_holders(f"when {source.begin}:{source.end} of shard {shard} was acknowledged")

    def _check_holders(self, when: str) -> None:
        """Each holder in the table of the store has all that was acknowledged."""
        table = self._store.table
        for at, server in enumerate(table.servers):
            process = self._processes[server.incarnation]
            held = np.array(table.primary) == at
            held |= np.array(table.backup) == at
            if not process.alive or not held.any():
                continue
            if self._of_stream:
                self._check_offsets(process, held, when)
                continue
            positions = read_marks(self._parts_of(process)[0], *self._records.ids.shape[:2], held)
            behind = positions[:, held].min(axis=1) < self._acknowledged
            if behind.any():
                shard = int(np.flatnonzero(behind)[0])
                self.fail(
                    "what is acknowledged is in each holder",
                    f"{when}, server {server.incarnation} had {int(positions[shard][held].min())} records of shard "
                    f"{shard} in some slot, and {self._acknowledged[shard]} are acknowledged (table {table.version})",
                )

    def _check_offsets(self, process: ServerProcess, held: Array, when: str) -> None:
        applied = read_offsets(self._parts_of(process)[0], *self._records.ids.shape[:2], held)[:, :, held]
        lacking = np.argwhere(self._offsets_acknowledged & ~applied.all(axis=2))
        if len(lacking):
            self.fail(
                "what is acknowledged is in each holder",
                f"{when}, server {process.incarnation} lacked {len(lacking)} acknowledged offsets in some slot, the "
                f"first of which is {lacking[0][1]} of partition {lacking[0][0]}",
            )

    def _parts_of(self, process: ServerProcess) -> tuple[Marks, Mapping[str, Rows]]:
        found = self._parts.get(process.incarnation)
        if found is None or len(found[1]) < len(self._names):
            found = self._parts[process.incarnation] = find_parts(process.kernel)
        return found

    def _held_by(self, process: ServerProcess) -> Array | None:
        """The slots that the server has to have by the table that it has read; None: none of them."""
        table, held = self._held.get(process.incarnation, (None, None))
        if table is not process.table:
            table = process.table
            at = table.index_of(process.incarnation)
            if at == NOBODY or len(table.primary) != SLOTS:
                held = None
            else:
                held = (np.array(table.primary) == at) | (np.array(table.backup) == at)
            self._held[process.incarnation] = table, held
        return held

    # -- tables -----------------------------------------------------------------------------------------------------

    def check_table(self) -> None:
        """A table was written."""
        *_, table = self._store.history
        before = self._store.history[-2] if len(self._store.history) > 1 else SlotTable()
        if table.lost and not (table.goes_back and self.may_lose):
            self.fail("no rows are lost while a holder lives", table.lost)
        if table.rows_from > before.rows_from:
            self._acknowledged[:] = 0
            self._offsets_acknowledged[:] = False
            self.may_lose = False
        self._check_return(table)
        if table.version != before.version + 1:
            self.fail("versions are numbered one by one", f"{table.version} follows {before.version}")
        if not table.primary:
            return
        primary, *others = (np.array(each) for each in (table.primary, table.backup, table.joining))
        same = (others[0] == primary) | (others[1] == primary) | ((others[0] == others[1]) & (others[0] != NOBODY))
        if same.any():
            self.fail("a slot's holders are different servers", f"slot {int(same.argmax())} of table {table.version}")
        if before.primary:
            now = np.array([each.incarnation for each in table.servers])[primary]
            names = np.array([*(each.incarnation for each in before.servers), ""])  # of NOBODY, which is the last
            held = [names[np.array(each)] == now for each in (before.primary, before.backup, before.joining)]
            if not np.logical_or.reduce(held).all():
                self.fail("a primary was a holder before", f"table {table.version} has a primary that held nothing")
        self._check_holders(f"when table {table.version} was written")

    def _check_return(self, table: SlotTable) -> None:
        """No server that held rows before the job went back has any after that."""
        before = {
            server.incarnation
            for each in (self._store.history if table.rows_from else ())
            for server in (each.servers if each.rows_from < table.rows_from else ())
        }
        if old := sorted(before.intersection(each.incarnation for each in table.servers)):
            self.fail("a job goes back as a whole", f"table {table.version} names {', '.join(old)} of before")

    # -- the end ----------------------------------------------------------------------------------------------------

    def check_end(self, replicas: int, nodes: int) -> None:
        """All is done and quiet."""
        table = self._store.table
        running = self._store.running
        if set(table.joining) != {NOBODY}:
            self.fail("copies end", f"{table.joining.count(NOBODY)} slots of table {table.version} have nobody joining")
        if replicas and len(running) > 1 and NOBODY in table.backup:
            self.fail(
                "each slot gets a backup", f"{table.backup.count(NOBODY)} slots of table {table.version} have none"
            )
        for name, holders in (("primary", table.primary), ("backup", table.backup if replicas else ())):
            counts = [holders.count(at) for at in range(len(table.servers))] if holders else [0]
            if name == "primary" and max(counts) - min(counts) > BALANCED:
                self.fail("servers have the same number of slots", f"as {name} they have {counts}")
        self._acknowledged[:] = self._records.ids.shape[1]  # the last may be applied when nobody is left to be told
        self._offsets_acknowledged[:] = True
        self._check_holders("at the end")
        for slot_holder in table.servers:
            self.check_server(self._processes[slot_holder.incarnation])
        self._compare_holders(table)

    def check_alone(self, expected: Mapping[int, bytes]) -> None:
        """Ranks in step have made the rows of the table `model` that one process makes of the same steps."""
        table = self._store.table
        for at, server in enumerate(table.servers):
            rows = self._parts_of(self._processes[server.incarnation])[1].get(self._records.model.name)
            found = read_rows(rows, np.array(table.primary) == at) if rows is not None else {}
            if wrong := [number for number, row in found.items() if expected[number] != row]:
                self.fail("rows are those of one process", f"{server.incarnation} has others in {len(wrong)} rows")

    def _compare_holders(self, table: SlotTable) -> None:
        """The two holders of a slot have the same rows, bit by bit; and nobody has rows of other slots."""
        for at, server in enumerate(table.servers):
            tables = self._parts_of(self._processes[server.incarnation])[1]
            held = (np.array(table.primary) == at) | (np.array(table.backup) == at)
            for name, rows in tables.items():
                if others := read_rows(rows, ~held):
                    self.fail(
                        "a server forgets what it holds no more",
                        f"server {server.incarnation} has {len(others)} rows of table {name!r} in slots of others",
                    )
        primary, backup = np.array(table.primary), np.array(table.backup)
        for pair in sorted({*zip(table.primary, table.backup, strict=True)}):
            if NOBODY not in pair:
                self._compare_pair(table, pair, (primary == pair[0]) & (backup == pair[1]))

    def _compare_pair(self, table: SlotTable, pair: tuple[int, int], slots: Array) -> None:
        """Of these slots."""
        names = [table.servers[at].incarnation for at in pair]
        tables = [self._parts_of(self._processes[each])[1] for each in names]
        for name in self._names:
            first, second = (read_rows(each[name], slots) if name in each else {} for each in tables)
            if first != second:
                numbers = [number for number in {*first, *second} if first.get(number) != second.get(number)]
                self.fail(
                    "holders of a slot are equal", f"{' and '.join(names)} differ in row {numbers[0]} of table {name!r}"
                )
