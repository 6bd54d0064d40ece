"""Which server a worker asks for which id: loops that numba compiles."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers.routing import Routes
from elastic_run.master.servers.slot_table import SLOTS, RunningServer, SlotTable


def routes_of(primary: list[int]) -> Routes:
    servers = tuple(RunningServer(number, f"s{number}", "n") for number in range(max(primary) + 1))
    return Routes(SlotTable(1, (), servers, tuple(primary)))


def slot_of(id_: int) -> int:
    """As Python has it."""
    word = id_ % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return (word ^ (word >> 31)) >> 54


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60), st.integers(0, 2**20), st.integers(1, 9))
def test_each_id_goes_to_the_server_of_its_slot_and_comes_back_to_its_place(
    ids: list[int], seed: int, count: int
) -> None:
    primary = np.random.default_rng(seed).integers(0, count, SLOTS).tolist()
    routes, given_ids = routes_of(primary), np.array(ids, np.int64)
    grouped = routes.group_ids(given_ids)
    assert grouped.ids[grouped.find_places()].tolist() == ids
    for number, server in enumerate(routes.servers):
        wanted = [id_ for id_ in ids if primary[slot_of(id_)] == server.number]
        assert grouped.take_part(grouped.ids, number).tolist() == wanted
    shares = grouped.share_count(3 * len(ids) + 1)
    parts = [len(grouped.take_part(grouped.ids, number)) for number in range(len(routes.servers))]
    assert sum(shares) == 3 * len(ids) + 1 and all(
        abs(share - 3 * part) <= 1 for share, part in zip(shares, parts, strict=True)
    )
    rows = np.arange(2.0 * len(ids), dtype=np.float32).reshape(-1, 2)
    assert grouped.reorder_rows(rows)[grouped.find_places()].tolist() == rows.tolist()


def test_servers_that_answer_for_nothing_are_not_asked() -> None:
    routes = routes_of([3] * 1000 + [1] * (SLOTS - 1000))
    assert [server.number for server in routes.servers] == [1, 3]
    grouped = routes.group_ids(np.arange(100))
    assert sorted(grouped.ids.tolist()) == list(range(100))
    assert grouped.ends[-1] == 100


def test_ids_that_are_grouped_already_stay() -> None:
    routes = routes_of(np.random.default_rng(0).integers(0, 5, SLOTS).tolist())
    once = routes.group_ids(np.arange(1000))
    again = routes.group_ids(once.ids)
    assert again.ids.tolist() == once.ids.tolist()
    assert again.order.tolist() == list(range(1000))
