"""Whole tables as files, while they are trained and their slots move."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elastic_run.adapters.servers.client import Answer, ServersConnection, Split
from elastic_run.adapters.servers.export import export_tables
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.master.servers.placement import ServersWanted
from elastic_run.master.servers.slot_table import NOBODY

from ....doubles.real_servers import RealServers, real_servers
from .counting_worker import CountingWorker

SECONDS = 60.0


class InterruptedClient(ServersClient):
    """Something happens after its first answers to an export.

    Attributes:
        interrupt: that, once.
    """

    def __init__(self, connection: ServersConnection) -> None:
        super().__init__(connection)
        self.interrupt: Callable[[], object] = bool

    def ask_servers(self, split: Split) -> list[Answer]:
        answers = super().ask_servers(split)
        happens, self.interrupt = self.interrupt, bool
        happens()
        return answers


def await_balance(servers: RealServers) -> None:
    """Two servers have half of the slots each, and nothing is on its way."""
    until = time.monotonic() + SECONDS
    while True:
        table = servers.known
        whole = table.serves and {NOBODY} == set(table.joining) and NOBODY not in table.backup
        if whole and abs(table.primary.count(0) - table.primary.count(1)) < 2:
            return
        assert time.monotonic() < until, table
        time.sleep(0.01)


def test_all_rows_are_in_the_files_and_only_once_though_slots_move_meanwhile(tmp_path: Path) -> None:
    ids = range(-1000, 400_000, 3)  # more than one piece from each server
    with real_servers(ServersWanted(2, 2, 1, 2), ["a", "b"], random.Random(0)) as servers:
        worker = CountingWorker(servers)
        await_balance(servers)
        client = InterruptedClient(worker.connection)
        worker.client.open_table(TableSpec("a/b", 2, SGD(1.0), Zeros()))
        for spec in worker.client.specs:
            client.open_table(spec)
        worker.use(*ids)
        worker.push(0, 1)

        def kill() -> None:
            before = servers.known.version
            assert servers.kill(random.Random(0))
            until = time.monotonic() + SECONDS
            while servers.known.version == before:
                assert time.monotonic() < until
                time.sleep(0.01)
            await_balance(servers)

        client.interrupt = kill
        export_tables(tmp_path / "all", client)
    found, rows = (np.load(tmp_path / "all" / "t" / name) for name in ("ids.npy", "rows.npy"))
    assert sorted(found.tolist()) == list(ids)
    assert (rows.dtype, rows.shape, set(rows.ravel().tolist())) == (np.float32, (len(ids), 1), {1.0})
    assert np.load(tmp_path / "all" / "a%2Fb" / "rows.npy").shape == (0, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    with (
        real_servers(ServersWanted(1, 1, 0), ["a"], random.Random(0)) as servers,
        pytest.raises(FileExistsError, match="export into a new folder"),
    ):
        export_tables(tmp_path, CountingWorker(servers).client)
