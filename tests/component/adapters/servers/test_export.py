"""Whole tables as files, while they are trained and their slots move."""

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from elastic_run.adapters.servers.export import export_tables
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.master.servers.placement import ServersWanted

from ....doubles.real_servers import real_servers
from .counting_worker import CountingWorker


def test_all_rows_are_in_the_files_and_only_once_though_slots_move_meanwhile(tmp_path: Path) -> None:
    ids = range(-300, 3000, 3)
    over = threading.Event()
    with real_servers(ServersWanted(2, 3, 1, 3), ["a", "b", "c"], random.Random(0)) as servers:
        worker = CountingWorker(servers)
        worker.client.open_table(TableSpec("a/b", 2, SGD(1.0), Zeros()))
        worker.use(*ids)
        worker.push(0, 1)

        def move() -> None:
            while not over.wait(0.02):
                servers.set_nodes(["a", "b"] if len(servers.nodes) == 3 else ["a", "b", "c"])

        moving = threading.Thread(target=move)
        moving.start()
        try:
            for number in range(5):
                export_tables(tmp_path / str(number), worker.client)
        finally:
            over.set()
            moving.join()
    for number in range(5):
        found, rows = (np.load(tmp_path / str(number) / "t" / name) for name in ("ids.npy", "rows.npy"))
        assert sorted(found.tolist()) == list(ids)
        assert (rows.dtype, rows.shape, set(rows.ravel().tolist())) == (np.float32, (len(ids), 1), {1.0})
        assert np.load(tmp_path / str(number) / "a%2Fb" / "rows.npy").shape == (0, 2)
    assert {path.name for path in tmp_path.iterdir()} == set("01234")


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    with (
        real_servers(ServersWanted(1, 1, 0), ["a"], random.Random(0)) as servers,
        pytest.raises(FileExistsError, match="export into a new folder"),
    ):
        export_tables(tmp_path, CountingWorker(servers).client)
