"""What a server was asked for by workers, by table, and how long they had to wait: two clock readings for a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...master.machine.parameter_servers import MOST_TOLD, ServerMeasure, TableMeasure
from .requests import PrepareGradients, PullRows, PushGradients, Reply, Request
from .rows import Rows
from .server_events import Arrays


@dataclass(slots=True)
class TableCounter:
    """One table since the server's beginning: see `TableMeasure`."""

    given: int = 0
    pulled: int = 0
    pulls: int = 0
    pull_seconds: float = 0.0
    pushed: int = 0


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """One that is not answered yet.

    Attributes:
        request: what was asked.
        counts: how many ids came with it, by table.
        at: when, in seconds.
    """

    request: Request
    counts: tuple[int, ...]
    at: float


class ServerCounters:
    """Of one server."""

    def __init__(self) -> None:
        self._tables: dict[str, TableCounter] = {}
        self._pulls = self._pushes = 0
        self._pull_seconds = self._push_seconds = 0.0
        self._open: dict[int, OpenRequest] = {}  # by connection, which has one at a time

    def begin_request(self, connection: int, request: Request, arrays: Arrays, now: float) -> None:
        """A worker's, or the agent's, at `now`, seconds."""
        match request:
            case PullRows():
                counts = tuple(each.size for each in arrays)  # not looked at yet: they may be of any shape
            case PushGradients() | PrepareGradients():
                counts = tuple(each.size for each in arrays[::2])
            case _:
                counts = ()
        self._open[connection] = OpenRequest(request, counts, now)

    def end_request(self, connection: int, reply: Reply, now: float) -> Request | None:
        """It is answered, or (`forget_connection`) nobody waits for that. What was asked; None: nothing."""
        if (asked := self._open.pop(connection, None)) is None:
            return None
        if not reply.refused:
            self._count(asked, now - asked.at)
        return asked.request

    def forget_connection(self, connection: int) -> None:
        """It is lost."""
        self._open.pop(connection, None)

    def _count(self, asked: OpenRequest, seconds: float) -> None:
        match asked.request:
            case PullRows(names, _, given):
                self._pulls += 1
                self._pull_seconds += seconds
                for name, count in zip(names, asked.counts, strict=True):
                    counter = self._tables.setdefault(name, TableCounter())
                    counter.given += given
                    counter.pulled += count
                    counter.pulls += 1
                    counter.pull_seconds += seconds
            case PushGradients(names) | PrepareGradients(names):
                self._pushes += 1
                self._push_seconds += seconds
                for name, count in zip(names, asked.counts, strict=True):
                    self._tables.setdefault(name, TableCounter()).pushed += count
            case _:
                pass

    def measure_server(self, tables: Sequence[Rows]) -> ServerMeasure:
        """So far, of those tables with most rows."""
        largest = sorted(tables, key=lambda rows: rows.count, reverse=True)[:MOST_TOLD]
        measures = tuple(self._measure(rows) for rows in sorted(largest, key=lambda rows: rows.spec.name))
        return ServerMeasure(measures, self._pulls, self._pull_seconds, self._pushes, self._push_seconds)

    def _measure(self, rows: Rows) -> TableMeasure:
        name, count = rows.spec.name, rows.count
        found = self._tables.get(name, TableCounter())
        return TableMeasure(
            name,
            count,
            count * rows.row_bytes,
            found.given,
            found.pulled,
            found.pulls,
            found.pull_seconds,
            found.pushed,
            rows.count - rows.pool.used if rows.pool is not None else 0,
            rows.pool.read if rows.pool is not None else 0,
        )
