"""The server of a process that has its tables itself, in place of the connection to the job's servers.

For a script that runs without a launcher, in a debugger, say; and for rows that were exported and are only read.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from ...master.servers.slot_table import SLOTS, RunningServer, SlotTable
from ...rendezvous.host.control_groups import usable_memory
from .client import Answer, AskedServer, Exchange, Split
from .errors import PushRefused, ServerFull, TableMisused
from .marks import Marks, RecordsRefused
from .offset_marks import write_applied
from .prepared import PreparedSteps, choose_step, make_part
from .requests import (
    ApplyStep,
    OpenTable,
    PrepareGradients,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    ReadPiece,
    ReadStream,
    Reply,
    Request,
)
from .routing import Routes
from .row_memory import TableFull
from .server_events import Arrays
from .slot_sets import SlotSet
from .tables import FoundPart, Tables, apply_parts, find_parts

ALL_SLOTS: SlotSet = np.ones(SLOTS, np.bool_)


class OwnServer:
    """All tables of one process; asked as a `ServersConnection` is.

    Args:
        memory: bytes that the rows may take; 0: half of the machine's, or of the control group's.
    """

    def __init__(self, memory: int = 0) -> None:
        self._tables = Tables(memory or usable_memory() // 2)
        self._marks = Marks()
        self._marks.hold_slots(ALL_SLOTS)
        self._prepared = PreparedSteps()
        self._server = RunningServer(0, "own", "here")
        self._routes = Routes(SlotTable(1, servers=(self._server,), primary=(0,) * SLOTS))

    def ask_servers(self, split: Split) -> list[Answer]:
        """See `ServersConnection`."""
        return self.finish(self.begin(split))

    def begin(self, split: Split) -> Exchange:
        """See `ServersConnection`; the answer is there at once. Raises TableMisused, ServerFull, PushRefused."""
        exchange = Exchange(split)
        exchange.routes = self._routes
        ((request, arrays),) = split(self._routes)
        asked = AskedServer(self._server, [])
        try:
            asked.answer = self._answer(request, arrays)
        except TableFull as error:
            raise ServerFull(str(error)) from None
        except RecordsRefused as error:
            raise PushRefused(str(error)) from None
        exchange.asked = [asked]
        return exchange

    def finish(self, exchange: Exchange) -> list[Answer]:
        """See `ServersConnection`."""
        return exchange.answers

    def put_exported(self, folder: Path) -> None:
        """Gives the tables that are open the rows that `export_tables` has written. Raises TableMisused, OSError."""
        for spec in self._tables.declared_specs:
            of_table, rows = folder / quote(spec.name, safe=""), self._tables.find_table(spec.name)
            if spec.shared is not None:
                raise TableMisused(
                    f"table {spec.name!r}: rows that ids share (admit_after) are not exported, and what reads only the "
                    "others would be wrong"
                )
            if not of_table.is_dir():
                raise TableMisused(f"{folder} has no rows of table {spec.name!r}: it is of another model")
            ids, values = np.load(of_table / "ids.npy"), np.load(of_table / "rows.npy")
            states = rows.copy_piece(0, ALL_SLOTS, 1)[0][2:]
            self._tables.check_count(rows, len(ids))
            empty = [np.zeros((len(ids), *each.shape[1:]), each.dtype) for each in states]
            try:
                rows.put_piece([ids, values, *empty])
            except ValueError:
                raise TableMisused(
                    f"{of_table} has rows of {values.shape[-1]} numbers, and table {spec.name!r} is declared with "
                    f"{spec.columns}: it is of another model"
                ) from None

    def _answer(self, request: Request, arrays: Arrays) -> Answer:
        match request:
            case OpenTable(table):
                return Reply(count=self._tables.open_table(table)), []
            case PullRows(tables):
                return Reply(), self._tables.pull_rows(tables, arrays, ALL_SLOTS)
            case PushGradients(tables, source):
                parts = self._tables.read_push(tables, arrays, ALL_SLOTS)
                if self._marks.judge(source, ALL_SLOTS).any():
                    self._tables.check_room(found := find_parts(parts), self._prepared.count_bytes())
                    self._apply(source, found)
                return Reply(), []
            case PrepareGradients(tables, source, share):
                parts = self._tables.read_push(tables, arrays, ALL_SLOTS)
                if (new := self._marks.judge(source, ALL_SLOTS)).any():
                    part = make_part(source, share, parts, new)
                    self._prepared.forget_decided(source)
                    kept = self._prepared.count_bytes(source, share.rank)
                    self._tables.check_prepared(find_parts(parts), part.bytes, kept)
                    self._prepared.put_part(part)
                return Reply(), []
            case ApplyStep():
                source, parts = choose_step(self._prepared, self._marks, request, ALL_SLOTS)
                if source is not None:
                    self._apply(source, find_parts(parts))
                    self._prepared.forget_applied(source, ALL_SLOTS)
                return Reply(), []
            case ReadMarks():
                self._marks.take_lease(request, ALL_SLOTS)
                return Reply(marks=self._marks.read_lease(request, ALL_SLOTS)), []
            case ReadStream(dataset):
                return Reply(), write_applied(self._marks.offsets.list_applied(dataset, ALL_SLOTS))
            case ReadPiece(table, first):
                ids, values, following = self._tables.find_table(table).read_piece(first, ALL_SLOTS)
                return Reply(count=following), [ids, values]
            case _:
                raise TableMisused(f"{type(request).__name__} is for servers of a job, and this process has none")

    def _apply(self, source: PushSource, found: Sequence[FoundPart]) -> None:
        """Raises TableFull."""
        apply_parts(found, reuse=True, at=source.at)
        self._marks.advance(source, ALL_SLOTS)
