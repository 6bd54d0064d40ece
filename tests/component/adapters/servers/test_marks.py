"""The marks of shards by slot, beside a twin that keeps a number for each."""

import contextlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers.marks import UNTOUCHED, Marks, RecordsRefused
from elastic_run.adapters.servers.requests import PushSource
from elastic_run.adapters.servers.slot_sets import SlotSet, read_slots, write_slots
from elastic_run.master.servers.slot_table import SLOTS

GROUPS = 4
"""Of slots, whose marks change together here."""

LENGTH = 6
"""Records of a shard."""


def slots_of(groups: set[int]) -> SlotSet:
    return np.isin(np.arange(SLOTS) % GROUPS, sorted(groups))


class Twin:
    """A mark for each group and shard."""

    def __init__(self) -> None:
        self.leases: dict[int, int] = {}
        self.marks: dict[tuple[int, int], int] = {}

    def at(self, group: int, shard: int) -> int:
        return self.marks.get((group, shard), UNTOUCHED)


groups = st.sets(st.integers(0, GROUPS - 1))


@dataclass(frozen=True)
class Push:
    """Of two servers' clients, in these groups."""

    groups: set[int]
    source: PushSource


@dataclass(frozen=True)
class Move:
    """Groups from one of two servers to the other."""

    groups: set[int]
    server: int


def push_of(groups: set[int], shard: int, lease: int, begin: int, length: int) -> Push:
    end = min(begin + length, LENGTH)
    return Push(groups, PushSource("d", shard, lease, begin, end, last=end == LENGTH))


numbers = [st.integers(0, 2), st.integers(0, 1), st.integers(0, 5), st.integers(1, 3)]

OPERATIONS = st.lists(
    st.one_of(st.builds(push_of, groups, *numbers), st.builds(Move, groups, st.integers(0, 1))), max_size=40
)


@settings(max_examples=150)
@given(operations=OPERATIONS, held=st.tuples(groups, groups))
def test_marks_are_those_of_a_number_for_each_slot(
    operations: list[Push | Move], held: tuple[set[int], set[int]]
) -> None:
    """Two servers that push only in what they hold, and copy slots from one to the other, which takes them over."""
    has = [set(held[0]), set(held[1]) - set(held[0])]
    marks, twins = (Marks(), Marks()), (Twin(), Twin())
    for each, mine in zip(marks, has, strict=True):
        each.hold_slots(slots_of(mine))
    for operation in operations:
        match operation:
            case Move(wanted, server):
                moved = wanted & has[server]
                marks[1 - server].put_slots(slots_of(moved), *marks[server].take_slots(slots_of(moved)))
                copy_twin(twins[server], twins[1 - server], moved)
                has = [has[server] - moved, has[1 - server] | moved][:: -1 if server else 1]
                for each, mine in zip(marks, has, strict=True):
                    each.hold_slots(slots_of(mine))
            case Push(wanted, source):
                for each, twin, mine in zip(marks, twins, has, strict=True):
                    push_both(each, twin, source, wanted & mine, mine)
        for each, twin, mine in zip(marks, twins, has, strict=True):
            for shard in range(3):
                for group in mine:
                    (mark,) = each.read("d", shard, slots_of({group}))
                    assert min(mark, LENGTH) == max(0, twin.at(group, shard))
            begun = next((at for at in range(3) if any(twin.at(group, at) != LENGTH for group in mine)), 3)
            for shard in range(begun if mine else 0):  # nothing is pushed of it under any lease
                twin.leases.pop(shard, None)
            assert not mine or len(each._all) <= 3 - begun  # pyright: ignore[reportPrivateUsage]


def copy_twin(source: Twin, target: Twin, moved: set[int]) -> None:
    for shard in range(3):
        for group in moved:
            target.marks[group, shard] = source.at(group, shard)
        target.leases[shard] = max(target.leases.get(shard, 0), source.leases.get(shard, 0))


def push_both(marks: Marks, twin: Twin, source: PushSource, wanted: set[int], mine: set[int]) -> None:
    shard, at = source.shard_index, {group: twin.at(group, source.shard_index) for group in wanted}
    refused = source.lease < twin.leases.get(shard, 0) or any(
        source.begin < mark < source.end or UNTOUCHED < mark < source.begin for mark in at.values()
    )
    if not wanted:
        return
    if all(twin.at(group, shard) == LENGTH for group in mine):  # whatever the lease: it may be forgotten
        with contextlib.suppress(RecordsRefused):
            assert not marks.judge(source, slots_of(wanted)).any()
        return
    if refused:
        with pytest.raises(RecordsRefused):
            marks.judge(source, slots_of(wanted))
        return
    new = {group for group, mark in at.items() if mark in (UNTOUCHED, source.begin)}
    assert (marks.judge(source, slots_of(wanted)) == slots_of(new)).all()
    marks.advance(source, slots_of(wanted))
    assert (marks.find_applied(source, slots_of(wanted)) == slots_of(wanted)).all()
    twin.leases[shard] = source.lease
    twin.marks |= {(group, shard): max(mark, source.end) for group, mark in at.items()}


def test_a_lease_that_begins_ends_those_before_it() -> None:
    marks, every = Marks(), slots_of({0, 1, 2, 3})
    marks.hold_slots(every)
    marks.begin_lease("d", 0, 2)
    marks.begin_lease("d", 0, 1)
    with pytest.raises(RecordsRefused, match="under lease 1, which lease 2 follows"):
        marks.judge(PushSource("d", 0, 1, 0, 1), every)
    assert marks.judge(PushSource("d", 0, 2, 4, 5), every).all()


def test_shards_of_which_all_slots_agree_take_one_number_each() -> None:
    marks = Marks()
    marks.hold_slots(slots_of({0, 1}))
    for begin in range(5):
        for group in (0, 1):
            marks.advance(PushSource("d", 0, 1, begin, begin + 1), slots_of({group}))
    assert marks._apart == {}  # pyright: ignore[reportPrivateUsage]
    assert marks.read("d", 0, slots_of({0, 1})) == (5,)


def test_of_finished_shards_a_number_is_kept_for_the_dataset() -> None:
    marks, every = Marks(), slots_of({0, 1, 2, 3})
    marks.hold_slots(every)
    for shard in (*range(100), 101):
        marks.begin_lease("d", shard, 1)
        marks.advance(PushSource("d", shard, 1, 0, 5, last=True), every)
        marks.begin_lease("d", shard, 2)
    names, arrays = marks.take_slots(slots_of({1}))
    shards, apart, *_ = arrays
    assert (names, len(shards), len(apart)) == (("d",), 2, 0)
    other = Marks()
    other.put_slots(slots_of({1}), names, arrays)
    for each in (marks, other):
        assert [each.read("d", shard, slots_of({1}))[0] > 5 for shard in (0, 99, 100, 101)] == [True, True, False, True]
        assert not each.judge(PushSource("d", 7, 1, 0, 5), slots_of({1})).any(), "also of an earlier lease"


@pytest.mark.parametrize("slots", [set[int](), {1}, {0, 1, 2, 3}])
def test_sets_of_slots_are_read_as_they_were_written(slots: set[int]) -> None:
    assert (read_slots(write_slots(slots_of(slots))) == slots_of(slots)).all()


@pytest.mark.parametrize("text", ["0", "zz", "00"])
def test_what_is_no_set_of_slots_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hexadecimal|slots"):
        read_slots(text)
