"""A table with numpy."""

from collections.abc import Iterator

import numpy as np
import pytest

from elastic_run.adapters.servers import session
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.row_table import RowTable
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, Zeros

from ....doubles.many_servers import ManyServers, many_servers


@pytest.fixture
def servers() -> Iterator[ManyServers]:
    with many_servers(2) as made:
        yield made


@pytest.fixture
def client(servers: ManyServers, monkeypatch: pytest.MonkeyPatch) -> ServersClient:
    made = servers.client()
    monkeypatch.setattr(session, "session", lambda: made)
    return made


@pytest.fixture
def table(client: ServersClient) -> RowTable:
    return RowTable("t", 1, SGD(1.0), Zeros())


def test_gradients_are_summed_for_each_id_and_go_with_the_records_that_are_named(
    client: ServersClient, servers: ManyServers, table: RowTable
) -> None:
    ids = np.array([[5, 6], [6, -1]])
    assert table.pull(ids).shape == (2, 2, 1)
    table.push(ids, -np.ones((2, 2, 1)))
    table.push([6], [[-2.0]])
    table.push(np.empty(0, np.int64), np.empty((0, 1)))
    assert not servers.rows.values
    client.push("d", 0, 1, 0, 4)
    assert {id_: value for (_, id_), value in servers.rows.values.items()} == {5: 1.0, 6: 4.0, -1: 1.0}
    assert table.rows([6, 7]).tolist() == [[4.0], [0.0]]
    assert table.rows(6).tolist() == [4.0]


def test_rows_that_were_fetched_ahead_are_taken_by_the_ids_as_they_were(
    client: ServersClient, servers: ManyServers, table: RowTable
) -> None:
    ids = np.array([4, 5])
    table.prefetch(ids)
    table.push([4], [[-1.0]])
    client.push("d", 0, 1, 0, 1)
    ids[:] = 4  # the script fills its array anew
    assert table.pull(ids).tolist() == [[1.0], [1.0]]
    assert table.pull([4, 5]).tolist() == [[0.0], [0.0]]  # before that push
    assert table.rows([4, 5]).tolist() == [[1.0], [0.0]]


def test_a_script_that_names_no_records_is_refused_at_its_second_step(client: ServersClient, table: RowTable) -> None:
    def use(*ids: int) -> None:
        table.pull(list(ids))
        for each in ids:
            table.push([each], [[1.0]])

    use(1, 2, 3)
    with pytest.raises(TableMisused, match=r"call shard.progress\(n\), shard.done\(\)"):
        use(4)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda table: table.pull(np.zeros(3)), "table 't': ids are float64, and must be int64"),
        (lambda table: table.pull(np.zeros(3, np.int32)), "ids are int32"),
        (lambda table: table.push([1, 2], np.zeros((2, 3))), r"gradients are \(2, 3\), .* must be \(2, 1\)"),
        (lambda table: table.push([1, 2], np.zeros(2)), r"gradients are \(2,\), .* must be \(2, 1\)"),
        (lambda _: RowTable("u", 1, SGD(1.0), unusable="drop"), "table 'u': unusable='drop' must be refuse or skip"),
        (lambda _: RowTable("u", 1, SGD(1.0), max_staleness=-1), "max_staleness=-1 must be a number of pushes from 0"),
    ],
)
def test_what_cannot_be_is_said(table: RowTable, wrong: object, words: str) -> None:
    assert callable(wrong)
    with pytest.raises(TableMisused, match=words):
        wrong(table)
