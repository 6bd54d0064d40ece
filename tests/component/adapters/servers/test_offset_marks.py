"""The marks of a stream's offsets by slot, beside a twin that keeps a bool for each, and how much of them is kept."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers.errors import RecordsRefused
from elastic_run.adapters.servers.marks import Marks
from elastic_run.adapters.servers.offset_marks import Range, read_applied, write_applied
from elastic_run.adapters.servers.requests import Offsets, PushSource, ReadMarks
from elastic_run.adapters.servers.slot_sets import SlotSet
from elastic_run.master.servers.slot_table import SLOTS

GROUPS = 3
"""Of slots, whose marks change together here."""

LENGTH = 12
"""Offsets of a partition."""

EVERY = np.ones(SLOTS, np.bool_)


def slots_of(groups: set[int]) -> SlotSet:
    return np.isin(np.arange(SLOTS) % GROUPS, sorted(groups))


@dataclass(frozen=True)
class Push:
    """Of two servers' clients, in these groups."""

    groups: set[int]
    partition: str
    lease: int
    first: int
    length: int


@dataclass(frozen=True)
class Lease:
    """Begins, and says a floor."""

    partition: str
    lease: int
    first: int
    length: int
    floor: int


@dataclass(frozen=True)
class Move:
    """Groups from one of two servers to the other, or to itself, as from a file."""

    groups: set[int]
    server: int
    leased: bool


Key = tuple[str, int]


@dataclass
class Twin:
    """What is applied, by group, and the last lease, of each offset."""

    applied: dict[int, set[Key]] = field(default_factory=lambda: {group: set[Key]() for group in range(GROUPS)})
    leases: dict[Key, int] = field(default_factory=dict[Key, int])


groups = st.sets(st.integers(0, GROUPS - 1))
partitions = st.sampled_from("ab")
offsets = (st.integers(0, LENGTH - 1), st.integers(1, 5))

OPERATIONS = st.lists(
    st.one_of(
        st.builds(Push, groups, partitions, st.integers(0, 2), *offsets),
        st.builds(Lease, partitions, st.integers(1, 2), *offsets, st.integers(0, 4)),
        st.builds(Move, groups, st.integers(0, 1), st.booleans()),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(operations=OPERATIONS, held=st.tuples(groups, groups))
def test_marks_of_offsets_are_those_of_a_bool_for_each_slot(
    operations: list[Push | Lease | Move], held: tuple[set[int], set[int]]
) -> None:
    """Two servers that push only in what they hold, and copy slots from one to the other, which takes them over."""
    has = [set(held[0]), set(held[1]) - set(held[0])]
    marks, twins = (Marks(), Marks()), (Twin(), Twin())
    for each, mine in zip(marks, has, strict=True):
        each.hold_slots(slots_of(mine))
    for operation in operations:
        match operation:
            case Move(wanted, server, leased):
                moved = wanted & has[server]
                names, arrays = marks[server].take_slots(slots_of(moved))
                marks[1 - server].put_slots(slots_of(moved), names, arrays, leased=leased)
                for group in moved:
                    twins[1 - server].applied[group] = set(twins[server].applied[group])
                for key, lease in twins[server].leases.items() if leased else ():
                    twins[1 - server].leases[key] = max(lease, twins[1 - server].leases.get(key, 0))
                has = [has[server] - moved, has[1 - server] | moved][:: -1 if server else 1]
                for each, mine in zip(marks, has, strict=True):
                    each.hold_slots(slots_of(mine))
            case Lease(name, lease, first, length, floor):
                asked = ReadMarks("d", 0, lease, 1, Offsets(name, first, first + length), (Offsets(name, 0, floor),))
                for each, twin, mine in zip(marks, twins, has, strict=True):
                    each.take_lease(asked, slots_of(mine))
                    for group in mine:
                        twin.applied[group] |= {(name, at) for at in range(floor)}
                    for at in range(first, first + length):
                        twin.leases[name, at] = max(lease, twin.leases.get((name, at), 0))
                    check_open(each, twin, asked, mine)
            case Push():
                for each, twin, mine in zip(marks, twins, has, strict=True):
                    push_both(each, twin, operation, mine)
        for each, twin, mine in zip(marks, twins, has, strict=True):
            forget_finished(twin, mine)
            check_applied(each, twin, mine)


def forget_finished(twin: Twin, mine: set[int]) -> None:
    """What is applied in all slots that a server holds is nobody's any more; one that holds none has no rows."""
    for group in set(range(GROUPS)) - mine:
        twin.applied[group] = set()
    for key in list(twin.leases):
        if mine and all(key in twin.applied[group] for group in mine):
            del twin.leases[key]


def push_both(marks: Marks, twin: Twin, push: Push, mine: set[int]) -> None:
    wanted = push.groups & mine
    if not wanted:
        return
    keys = {(push.partition, at) for at in range(push.first, push.first + push.length)}
    source = PushSource("d", 0, push.lease, push.first, push.first + push.length, partition=push.partition)
    have = {group: len(keys & twin.applied[group]) for group in wanted}
    late = any(twin.leases.get(key, 0) > push.lease for key in keys)
    if late or any(0 < count < len(keys) for count in have.values()):
        with pytest.raises(RecordsRefused):
            marks.judge(source, slots_of(wanted))
        return
    new = {group for group, count in have.items() if not count}
    assert (marks.judge(source, slots_of(wanted)) == slots_of(new)).all()
    marks.advance(source, slots_of(wanted))
    assert (marks.find_applied(source, slots_of(wanted)) == slots_of(wanted)).all()
    for group in wanted:
        twin.applied[group] |= keys


def check_open(marks: Marks, twin: Twin, asked: ReadMarks, mine: set[int]) -> None:
    """The first offsets that some group lacks, as far as the same groups do."""
    assert asked.offsets
    name, first, stop = asked.offsets.partition, asked.offsets.first, asked.offsets.stop
    lacking = [{group for group in mine if (name, at) not in twin.applied[group]} for at in range(first, stop)]
    begin = next((at for at, some in enumerate(lacking) if some), None)
    expected = tuple[int, ...]()
    if begin is not None:
        end = next((at for at in range(begin, len(lacking)) if lacking[at] != lacking[begin]), len(lacking))
        expected = first + begin, first + end
    assert marks.read_lease(asked, slots_of(mine)) == expected


def check_applied(marks: Marks, twin: Twin, mine: set[int]) -> None:
    listed: Mapping[str, list[Range]] = marks.offsets.list_applied("d", slots_of(mine)) if mine else {}
    found = {(name, at) for name, ranges in listed.items() for first, stop in ranges for at in range(first, stop)}
    assert found == (set[Key].intersection(*(twin.applied[group] for group in mine)) if mine else set())
    for (_, name), stretches in marks.offsets._all.items():  # pyright: ignore[reportPrivateUsage]
        states = [
            (twin.leases.get((name, at), 0), *((name, at) in twin.applied[group] for group in sorted(mine)))
            for at in range(LENGTH + 5)
        ]
        changes = sum(before != state for before, state in pairwise([(0, *[False] * len(mine)), *states]))
        assert len(stretches) <= changes, "as few as can be"


def test_what_is_kept_of_a_stream_does_not_grow_with_it() -> None:
    """64 leases in work, of which some are slow, in a long stream: a count, and the bytes of a part."""
    chance, marks = Random(7), Marks()
    marks.hold_slots(EVERY)
    work, gone, at, sizes = deque[tuple[int, int]](), list[int](), 0, list[int]()
    while at < 200_000:
        if chance.random() < 0.1:  # what the source has forgotten
            gone.append(at := at + 900)
        work.append((at, at + chance.randint(1, 1000)))
        at = work[-1][1]
        floor = min(first for first, _ in work)
        lease = ReadMarks("d", 0, 1, 1, Offsets("a", *work[-1]), (Offsets("a", 0, floor),))
        marks.take_lease(lease, EVERY)
        if len(work) > 64:
            work.rotate(-chance.randrange(64))
            first, stop = work.popleft()
            for begin in range(first, stop, 300):
                marks.advance(PushSource("d", 0, 1, begin, min(begin + 300, stop), partition="a"), EVERY)
        gone = [each for each in gone if each > floor]
        assert marks.offsets.count <= 2 * len(work) + len(gone) + 1, "one for each lease, and one behind it or a gap"
        sizes.append(sum(each.nbytes for each in marks.take_slots(EVERY)[1]))
    assert max(sizes) < 7000 and max(sizes[len(sizes) // 2 :]) < 1.5 * max(sizes[: len(sizes) // 2])
    for first, stop in work:
        marks.advance(PushSource("d", 0, 1, first, stop, partition="a"), EVERY)
    marks.take_lease(ReadMarks("d", 0, 1, 1, None, (Offsets("a", 0, at),)), EVERY)
    assert marks.offsets.count == 1


def test_what_all_servers_have_is_what_each_of_them_has() -> None:
    answers = (
        {"a": [(0, 5), (7, 9)], "b": [(0, 3)], "c": []},
        {"a": [(0, 2), (4, 8)], "c": [(0, 1)]},
    )
    assert read_applied(map(write_applied, answers)) == {"a": [(0, 2), (4, 5), (7, 8)], "c": []}
    assert json.loads(write_applied({"ä": []})[0].tobytes()) == ["ä"]


def test_a_floor_that_ends_before_it_begins_says_nothing_and_ends_no_server() -> None:
    marks = Marks()
    marks.hold_slots(EVERY)
    asked = ReadMarks("s", 0, 1, 1, Offsets("p", 3, 6), (Offsets("q", 5, 2),))
    marks.take_lease(asked, EVERY)
    assert marks.read_lease(asked, EVERY) == (3, 6)
    assert marks.offsets.list_applied("s", EVERY)["q"] == []
