"""Steps of all ranks, prepared and applied, by a worker and the servers of its own process."""

from collections.abc import Iterator

import numpy as np
import pytest

from elastic_run.adapters.client.pushes import StepRecords
from elastic_run.adapters.servers.errors import PushRefused, ServerFull, TableMisused
from elastic_run.adapters.servers.own_server import OwnServer
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, Numbers, TableSpec, Zeros

NUMBERS = (1e8, 1.0, -1e8, 3e-5)
"""Whose sum depends on the order in float32."""


class Ranks:
    """Clients that share servers."""

    def __init__(self, world: int, dtype: Numbers = "float32", *, rows_of: int = 1, memory: int = 1 << 22) -> None:
        server = OwnServer(memory)
        self.columns = rows_of
        self.clients = [ServersClient(server) for _ in range(world)]
        for client in self.clients:
            client.open_table(TableSpec("t", rows_of, SGD(1.0), Zeros(), dtype=dtype))

    def prepare(self, rank: int, begin: int, end: int, *gradients: float, round: int = 1) -> StepRecords:
        """Of id 0 and on."""
        client, rows = self.clients[rank], np.repeat(np.array(gradients, np.float32)[:, None], self.columns, axis=1)
        client.await_gradient("t", np.arange(len(rows)), lambda: rows)
        client.prepare_step(step := StepRecords("d", 0, round, begin, end), rank, len(self.clients))
        return step

    def push(self, ids: range) -> None:
        """As a worker with shards of its own."""
        client, gradients = self.clients[0], np.ones((len(ids), self.columns), np.float32)
        client.push_once("t", ids[0], np.array(ids, np.int64), gradients)

    def rows(self) -> list[float]:
        return self.clients[0].pull("t", np.arange(3))[1][:, 0].tolist()


def test_a_step_is_the_mean_over_the_ranks_summed_in_their_order_whoever_comes_first() -> None:
    found: set[float] = set()
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        ranks = Ranks(4)
        for rank in order:
            ranks.prepare(rank, 0, 4, NUMBERS[rank])
            assert ranks.rows()[0] == 0.0
        for client in ranks.clients:
            client.apply_step(StepRecords("d", 0, 1, 0, 4))
        found.add(ranks.rows()[0])
    expected = np.float32(0.0)
    for number in NUMBERS:
        expected = np.float32(expected + np.float32(number) / np.float32(4))
    assert found == {-float(expected)}


def test_a_step_of_halved_numbers_is_summed_in_all_of_them_and_rounded_once() -> None:
    ranks = Ranks(2, "bfloat16")
    ranks.prepare(0, 0, 2, 512.0)
    step = ranks.prepare(1, 0, 2, 2.0)
    ranks.clients[0].apply_step(step)
    assert ranks.rows()[0] == -256.0  # 257 has nine bits


def test_what_not_every_rank_has_prepared_is_refused_and_an_earlier_round_prepares_nothing_any_more() -> None:
    ranks = Ranks(2)
    step = ranks.prepare(0, 0, 4, -1.0)
    with pytest.raises(PushRefused, match="not every rank has prepared the step up to record 4"):
        ranks.clients[0].apply_step(step)
    assert ranks.clients[0].settle_steps("d", 2, (0, 0)) == [(0, 0)]
    with pytest.raises(PushRefused, match="under lease 1, which lease 2 follows"):
        ranks.prepare(1, 0, 4, -1.0)
    with pytest.raises(PushRefused, match="under lease 1"):
        ranks.clients[1].apply_step(step)
    assert ranks.rows() == [0.0, 0.0, 0.0]


@pytest.fixture
def prepared() -> Iterator[Ranks]:
    """Two ranks have done the first 4 records, and have prepared those to 8."""
    ranks = Ranks(2)
    for end in (4, 8):
        ranks.prepare(0, end - 4, end, -2.0)
        step = ranks.prepare(1, end - 4, end, -2.0)
        if end == 4:
            ranks.clients[0].apply_step(step)
    yield ranks


@pytest.mark.parametrize(("position", "rows", "furthest"), [((0, 4), 2.0, 4), ((0, 8), 4.0, 8), ((1, 0), 4.0, 8)])
def test_the_next_round_decides_by_its_position(
    prepared: Ranks, position: tuple[int, int], rows: float, furthest: int
) -> None:
    for client in prepared.clients:
        assert client.settle_steps("d", 2, position) == [(0, furthest)]
    assert prepared.rows()[0] == rows


def test_a_step_that_the_rows_have_is_not_applied_again_and_one_across_it_is_refused(prepared: Ranks) -> None:
    client = prepared.clients[0]
    assert client.settle_steps("d", 2, (0, 0)) == [(0, 4)]
    for rank in (0, 1):
        step = prepared.prepare(rank, 0, 4, -2.0, round=2)
    client.apply_step(step)
    assert prepared.rows()[0] == 2.0
    with pytest.raises(PushRefused, match="cut the batch at record 4"):
        prepared.prepare(0, 0, 6, -2.0, round=2)


def test_gradients_of_a_step_that_is_undone_are_not_prepared_with_the_next(prepared: Ranks) -> None:
    client = prepared.clients[0]
    client.await_gradient("t", np.array([2]), lambda: np.full((1, 1), -7.0, np.float32))
    client.settle_steps("d", 2, (0, 4))
    for rank in (0, 1):
        step = prepared.prepare(rank, 4, 8, -2.0, round=2)
    client.apply_step(step)
    assert prepared.rows() == [4.0, 0.0, 0.0]


def test_gradients_that_are_no_numbers_are_refused_before_anything_is_prepared(prepared: Ranks) -> None:
    prepared.clients[0].settle_steps("d", 2, (0, 8))
    with pytest.raises(TableMisused, match="a gradient is not a finite number"):
        prepared.prepare(0, 8, 12, float("nan"), round=2)


def test_what_is_prepared_has_its_room_and_is_refused_before_any_rank_may_commit_it() -> None:
    ranks = Ranks(2, rows_of=512, memory=64 << 10)  # 13 KiB prepared, and rows as large
    step = ranks.prepare(0, 0, 2, *[1.0] * 6)
    ranks.prepare(0, 0, 2, *[1.0] * 6)  # once more, which takes nothing more
    with pytest.raises(ServerFull, match=r"prepared steps 1 MiB.*No rank has this step in its rows.*--ps-checkpoint"):
        ranks.prepare(1, 0, 2, *[1.0] * 12)
    with pytest.raises(ServerFull, match="prepared steps"):  # a push of other records does not take its room
        ranks.push(range(100, 120))
    ranks.prepare(1, 0, 2, *[1.0] * 6)
    ranks.clients[0].apply_step(step)
    assert ranks.rows() == [-1.0] * 3
    ranks.push(range(100, 110))  # where the prepared gradients were


def test_what_a_rank_reads_between_two_of_its_commits_is_one_version() -> None:
    ranks = Ranks(2)
    ranks.prepare(0, 0, 2, 1.0)
    step = ranks.prepare(1, 0, 2, 2.0)
    for client in ranks.clients:
        client.apply_step(step)
    before = ranks.rows()
    following = ranks.prepare(1, 2, 4, 5.0)
    with pytest.raises(PushRefused, match="not every rank has prepared"):
        ranks.clients[1].apply_step(following)
    assert ranks.rows() == before == [-1.5, 0.0, 0.0]
