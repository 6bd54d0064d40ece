"""Which shards make a step whole, and which bytes of them a rank of another world size reads."""

import random
from collections.abc import Iterator
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.adapters.client.shard_plan import (
    WHOLE,
    Box,
    Generations,
    HeldShards,
    PiecesMissing,
    Replication,
    StoredPiece,
    choose_reader,
    choose_shards,
    choose_targets,
    find_crowded,
    name_part,
    plan_rows,
    rank_of_part,
)

RUN = 7


def held(node: str, rank: int, step: int, *, world: int = 2, round: int = 1, slot: int = 0) -> HeldShards:
    return HeldShards(node, name_part(RUN, round, rank), slot, rank, world, RUN, round, step, 100 * step + rank, 64)


def test_a_step_is_there_when_the_shards_of_every_rank_are_held() -> None:
    found = choose_shards([held("B", 1, 5), held("A", 0, 5), held("A", 0, 4)], RUN, 1, 5, 2)
    assert found == {0: (held("A", 0, 5),), 1: (held("B", 1, 5),)}


@pytest.mark.parametrize(
    "other",
    [held("B", 1, 4), held("B", 1, 5, round=2), held("B", 1, 5, world=3), held("B", 0, 5)],
    ids=["another step", "another round", "another world", "another rank"],
)
def test_without_the_shards_of_one_rank_there_is_no_step(other: HeldShards) -> None:
    assert choose_shards([held("A", 0, 5), other], RUN, 1, 5, 2) == {}


def test_where_shards_are_damaged_those_of_another_node_are_taken() -> None:
    rows = [held("A", 0, 5), held("B", 0, 5), held("B", 1, 5)]
    found = choose_shards(rows, RUN, 1, 5, 2, {held("A", 0, 5)})
    assert found[0] == (held("B", 0, 5),)
    assert choose_shards(rows, RUN, 1, 5, 2, {held("B", 1, 5)}) == {}


def test_who_holds_shards_itself_reads_them_there_and_others_ask_holders_in_turn() -> None:
    holders = (held("A", 0, 5), held("B", 0, 5))
    assert choose_reader(holders, "B", 0).node == "B"
    assert [choose_reader(holders, "C", rank).node for rank in range(4)] == ["A", "B", "A", "B"]


def test_the_name_of_a_part_says_whose_it_is() -> None:
    assert rank_of_part(name_part(RUN, 3, 12)) == 12
    assert rank_of_part("") == -1
    assert name_part(RUN, 3, 1) != name_part(RUN, 4, 1)


def cut(shape: tuple[int, ...], dim: int, parts: int) -> Iterator[Box]:
    """The boxes of a tensor that is cut as torch.chunk cuts it: the last ones may be short or empty."""
    length = -(-shape[dim] // parts)
    for part in range(parts):
        begin = min(part * length, shape[dim])
        size = min(length, shape[dim] - begin)
        offsets = tuple(begin if each == dim else 0 for each in range(len(shape)))
        yield Box(offsets, tuple(size if each == dim else whole for each, whole in enumerate(shape)))


def index_of(shape: tuple[int, ...], at: tuple[int, ...]) -> int:
    found = 0
    for size, each in zip(shape, at, strict=True):
        found = found * size + each
    return found


def coordinates(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for number in range(prod(sizes)):
        at: list[int] = []
        for size in reversed(sizes):
            number, here = divmod(number, size)
            at.append(here)
        yield tuple(reversed(at))


def read(shape: tuple[int, ...], pieces: list[Box], wanted: Box, bucket: int) -> list[int]:
    """What a reader has in its box: each element of the whole tensor is its own number, in one byte."""
    memory = [
        bytes(index_of(shape, tuple(map(sum, zip(box.offsets, at, strict=True)))) for at in coordinates(box.sizes))
        for box in pieces
    ]
    got = [-1] * wanted.elements
    for rows in plan_rows(wanted, [StoredPiece(box, source, 0) for source, box in enumerate(pieces)], 1, bucket):
        data = memory[rows.source][rows.begin : rows.end]
        assert len(data) == prod(rows.shape)
        assert len(data) <= max(bucket, prod(rows.shape[1:]))
        spans = tuple(end - begin for begin, end in rows.taken)
        assert spans == tuple(end - begin for begin, end in rows.placed)
        for at in coordinates(spans):
            source = tuple(begin + each for (begin, _), each in zip(rows.taken, at, strict=True))
            target = tuple(begin + each for (begin, _), each in zip(rows.placed, at, strict=True))
            assert got[index_of(wanted.sizes, target)] == -1, "each element is read once"
            got[index_of(wanted.sizes, target)] = data[index_of(rows.shape, source)]
    return got


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    cuts=st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2), st.integers(1, 4)),
    bucket=st.integers(1, 40),
)
def test_any_cut_of_a_tensor_is_read_from_any_other(
    shape: tuple[int, ...], cuts: tuple[int, int, int, int], bucket: int
) -> None:
    before = list(cut(shape, cuts[0] % len(shape), cuts[1]))
    for wanted in cut(shape, cuts[2] % len(shape), cuts[3]):
        right = [
            index_of(shape, tuple(map(sum, zip(wanted.offsets, at, strict=True)))) for at in coordinates(wanted.sizes)
        ]
        assert read(shape, before, wanted, bucket) == right


def test_what_two_ranks_hold_alike_is_read_once() -> None:
    [whole] = cut((4,), 0, 1)
    assert read((4,), [whole, whole], whole, 100) == [0, 1, 2, 3]


def test_a_number_is_read_whole() -> None:
    [rows] = plan_rows(Box((), ()), [StoredPiece(Box((), ()), WHOLE, 128)], 8, 1)
    assert (rows.source, rows.begin, rows.end, rows.shape) == (WHOLE, 128, 136, ())


def test_three_ranks_rows_become_those_of_two() -> None:
    pieces = [StoredPiece(box, rank, 64) for rank, box in enumerate(cut((6, 10), 0, 3))]
    _, second = cut((6, 10), 0, 2)
    plan = [(rows.source, rows.begin, rows.end, rows.placed[0]) for rows in plan_rows(second, pieces, 4, 1 << 20)]
    assert plan == [(1, 64 + 40, 64 + 80, (0, 1)), (2, 64, 64 + 80, (1, 3))]


def test_elements_that_no_piece_has_are_told() -> None:
    first, _ = cut((6, 10), 0, 2)
    [whole] = cut((6, 10), 0, 1)
    with pytest.raises(PiecesMissing, match="30 of its 60 elements are nowhere"):
        list(plan_rows(whole, [StoredPiece(first, 0, 0)], 4, 100))


class Ranks:
    """Ranks that write each step as fast as they are let, and are all killed at some instant."""

    def __init__(self, world: int, draw: random.Random, *, waits: bool) -> None:
        self.world, self._draw, self._waits = world, draw, waits
        self.slots: list[dict[int, int]] = [{} for _ in range(world)]  # of each rank: whole steps
        self._agreed: list[int | None] = [None] * world
        self._step = [0] * world
        self._writing: list[int | None] = [None] * world
        self.committed = 0

    def advance(self) -> None:
        """One of them goes on by a bit: begins a copy, ends it, or hears that all have ended theirs."""
        rank = self._draw.randrange(self.world)
        slot = self._writing[rank]
        if slot is not None:
            self.slots[rank][slot] = self._step[rank]
            self._writing[rank] = None
        elif self._newest(rank) == self._step[rank] and not self._goes_on(rank):
            return  # it waits for the others
        else:
            self._step[rank] += 1
            self._writing[rank] = slot = self._choose_slot(rank)
            self.slots[rank].pop(slot, None)  # the header is cleared first

    def _choose_slot(self, rank: int) -> int:
        whole = {slot: self.slots[rank].get(slot, -1) for slot in range(2)}
        return Generations(whole, [slot for slot in whole if slot == self._agreed[rank]]).choose_slot()

    def _goes_on(self, rank: int) -> bool:
        if self._waits and not all(self._newest(each) >= self._step[rank] for each in range(self.world)):
            return False
        if self._step[rank]:
            self._agreed[rank] = next(slot for slot, step in self.slots[rank].items() if step == self._step[rank])
            if self._waits:
                self.committed = max(self.committed, self._step[rank])
        return True

    def _newest(self, rank: int) -> int:
        return max(self.slots[rank].values(), default=0)

    @property
    def restored(self) -> int:
        """The newest step that is whole; 0: none is."""
        rows = [held("A", rank, step, world=self.world) for rank in range(self.world) for step in self._of(rank)]
        steps = sorted({each.step for each in rows}, reverse=True)
        return next((step for step in steps if choose_shards(rows, RUN, 1, step, self.world)), 0)

    def _of(self, rank: int) -> list[int]:
        return list(self.slots[rank].values())


def kill_at_random_instants(*, waits: bool) -> int:
    """How often no step that all shards have is left, or a committed one is lost, in 300 lives of 2 to 4 ranks."""
    draw, lost = random.Random(5), 0
    for _ in range(300):
        ranks = Ranks(draw.randint(2, 4), draw, waits=waits)
        for _ in range(draw.randint(20, 80)):
            ranks.advance()
        lost += ranks.restored < ranks.committed or (
            min(map(max, ([0, *each.values()] for each in ranks.slots))) > 0 and ranks.restored == 0
        )
    return lost


def test_ranks_that_overwrite_the_older_only_when_all_have_the_newer_lose_no_committed_step() -> None:
    assert kill_at_random_instants(waits=True) == 0


def test_ranks_that_do_not_wait_for_each_other_are_left_without_a_step_that_all_have() -> None:
    assert kill_at_random_instants(waits=False) > 0


def test_the_oldest_that_is_not_kept_is_written_next_and_a_new_one_where_all_are_kept() -> None:
    assert Generations({}).choose_slot() == 0
    assert Generations({0: 1}, {0}).choose_slot() == 1
    assert Generations({0: 1, 1: 2}, {1}).choose_slot() == 0
    assert Generations({0: 1, 1: 2}, {0, 1}).choose_slot() == 2
    assert Generations({0: 1, 1: 2, 2: 3}, {0, 2}).choose_slot() == 1


def test_the_next_step_is_copied_when_every_rank_has_copied_the_one_before_it() -> None:
    found = Replication().advance(5, done=True)
    assert found == Replication(None, 5)
    assert found.advance(6, done=False) == found
    assert found.advance(9, done=True) == Replication(5, 9)


def test_each_nodes_shards_are_copied_to_the_next_node() -> None:
    assert choose_targets(["A", "A", "B", "C"]) == {"A": "B", "B": "C", "C": "A"}
    assert choose_targets(["A", "A"]) == {}


def test_a_node_is_crowded_where_its_ranks_together_want_more_than_it_has() -> None:
    assert find_crowded([("A", 60, 100), ("B", 60, 100)]) is None
    assert find_crowded([("B", 60, 200), ("A", 60, 110), ("A", 60, 100)]) == ("A", 120, 100)
    assert find_crowded([("A", 60, 120), ("A", 60, 120)]) is None
