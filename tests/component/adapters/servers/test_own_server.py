"""The tables of a process that has them itself."""

from pathlib import Path

import numpy as np
import pytest

from elastic_run.adapters.servers.errors import PushRefused, ServerFull, TableMisused
from elastic_run.adapters.servers.export import export_tables
from elastic_run.adapters.servers.own_server import OwnServer
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, Adam, TableSpec, Zeros

IDS = np.array([7, 5, 7], np.int64)


def client(columns: int = 2, memory: int = 0) -> ServersClient:
    made = ServersClient(OwnServer(memory))
    made.open_table(TableSpec("user", columns, SGD(1.0), Zeros()))
    made.open_table(TableSpec("advert", columns, Adam(), Zeros()))
    return made


def push(to: ServersClient, begin: int, end: int, lease: int = 1) -> None:
    to.await_gradient("user", np.array([7, 5], np.int64), lambda: np.full((2, 2), -1.0, np.float32))
    to.push("train", 0, lease, begin, end)


def test_a_push_counts_once_and_moves_the_mark() -> None:
    here = client()
    push(here, 0, 10)
    push(here, 0, 10)
    assert here.cuts("train", 0, 2, 0) == [10]
    distinct, rows, inverse = here.pull("user", IDS)
    assert distinct.tolist() == [7, 5] and inverse.tolist() == [0, 1, 0] and rows.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(PushRefused, match="under lease 1, which lease 2 follows"):
        push(here, 10, 20)


def test_rows_that_were_exported_are_read_by_another_process(tmp_path: Path) -> None:
    here = client()
    push(here, 0, 10)
    export_tables(tmp_path / "tables", here)
    there = client()
    there.put_exported(tmp_path / "tables")
    assert there.pull("user", IDS)[1].tolist() == [[1, 1], [1, 1]]
    assert there.pull("advert", IDS)[1].tolist() == [[0, 0], [0, 0]]


def test_rows_of_another_model_are_refused(tmp_path: Path) -> None:
    here = client()
    push(here, 0, 10)
    export_tables(tmp_path / "tables", here)
    with pytest.raises(TableMisused, match="has rows of 2 numbers, and table 'user' is declared with 3"):
        client(columns=3).put_exported(tmp_path / "tables")
    here.open_table(TableSpec("other", 2, SGD(1.0), Zeros()))
    with pytest.raises(TableMisused, match="has no rows of table 'other'"):
        here.put_exported(tmp_path / "tables")


def test_rows_beyond_the_memory_are_refused() -> None:
    here = client(memory=100)
    with pytest.raises(ServerFull, match="give servers more memory"):
        push(here, 0, 10)


def test_what_is_fetched_ahead_is_there() -> None:
    here = client()
    here.prefetch("user", IDS)
    assert here.pull("user", IDS, 1)[1].tolist() == [[0, 0], [0, 0]]
