"""A worker's end of one server that holds everything and stays where it is."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elastic_run.adapters.servers.client import ServersConnection
from elastic_run.adapters.servers.job_servers import JobServers
from elastic_run.adapters.servers.requests import (
    OpenTable,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    ReadPiece,
    Reply,
    Request,
)
from elastic_run.adapters.servers.specs import TableSpec
from elastic_run.adapters.servers.table_source import TableSource
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, ServerPlace, SlotTable

Array = Any
"""An array of numpy."""


def table_of_one(address: str, incarnation: str = "only", version: int = 1) -> SlotTable:
    """By which one server has all slots."""
    nobody = (NOBODY,) * SLOTS
    server = RunningServer(0, incarnation, "here", address)
    return SlotTable(version, (ServerPlace(0, "here"),), (server,), (0,) * SLOTS, nobody, nobody)


class StillSource(TableSource):
    """Stands for an agent that has one table and never another."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self.asked = False

    def ask_agent(self, version: int, awaits: Sequence[int], seconds: float) -> None:
        self.asked = version < self._table.version

    def read_answer(self) -> JobServers:
        self.asked = False
        return JobServers(self._table, "here")

    def close(self) -> None:
        pass


class OneServer:
    """Its requests, each by itself. They raise what the client raises.

    Args:
        table: one with one server.
    """

    def __init__(self, table: SlotTable, seconds: float = 60.0) -> None:
        self._version = table.version
        self._connection = ServersConnection(StillSource(table), seconds)

    def ask(self, request: Request, *arrays: Array) -> tuple[Reply, list[Array]]:
        ((reply, found),) = self._connection.ask_servers(lambda routes: [(request, arrays)])
        return reply, found

    def open_table(self, spec: TableSpec) -> int:
        return self.ask(OpenTable(spec, self._version))[0].count

    def pull(self, **ids: Array) -> list[Array]:
        return self.ask(PullRows(tuple(ids), self._version), *ids.values())[1]

    def push(self, source: PushSource, **gradients: tuple[Array, Array]) -> int:
        arrays = [np.asarray(array) for pair in gradients.values() for array in pair]
        return self.ask(PushGradients(tuple(gradients), source, self._version), *arrays)[0].count

    def read_marks(self, dataset: str, shard_index: int, lease: int = 1) -> tuple[int, ...]:
        return self.ask(ReadMarks(dataset, shard_index, lease, self._version))[0].marks

    def read_piece(self, table: str, first: int) -> tuple[Array, Array]:
        ids, values = self.ask(ReadPiece(table, first, self._version))[1]
        return ids, values

    def close(self) -> None:
        self._connection.close()
