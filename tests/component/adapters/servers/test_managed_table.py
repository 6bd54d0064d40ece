"""Tables that stay within a size: which ids have rows, against a model in plain Python."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.managed_table import SLOT_KEYS
from elastic_run.adapters.servers.specs import (
    SGD,
    Adam,
    Eviction,
    LeastFrequent,
    LeastRecent,
    Normal,
    OlderThan,
    TableSpec,
    Uniform,
    Zeros,
)
from elastic_run.master.servers.slot_table import SLOTS

from .held_table import ALL_SLOTS, Holder, slot_of

SHARE = 9
"""Rows that a slot may have, in the tables here."""


FEW_SLOTS = [id_ for id_ in range(60_000) if slot_of(id_) < 3]
"""Some 60 ids in each of three slots."""


@dataclass
class PlainRow:
    count: float = 0.0
    touched: int = 0
    times: int = 0


@dataclass
class PlainTable:
    """Counts gradients of -1 as the product's table does, with all decisions made one id at a time."""

    admit_after: int = 0
    evict: Eviction | None = None
    rows: dict[int, PlainRow] = field(default_factory=dict[int, PlainRow])
    waiting: dict[int, PlainRow] = field(default_factory=dict[int, PlainRow])
    shared: dict[int, float] = field(default_factory=dict[int, float])
    clocks: dict[int, int] = field(default_factory=dict[int, int])

    def push(self, ids: list[int], at: int) -> None:
        before = dict(self.clocks)
        for slot in {slot_of(id_) for id_ in ids}:
            old = self.clocks.get(slot, 0)
            self.clocks[slot] = max(old, at) if isinstance(self.evict, OlderThan) else old + 1
        for id_ in ids:
            self.use(id_, self.clocks[slot_of(id_)])
        for slot in {slot_of(id_) for id_ in ids}:
            for rows in (self.rows, self.waiting):
                self.shrink(rows, slot, before.get(slot, 0))

    def use(self, id_: int, now: int) -> None:
        if id_ in self.rows or self.admit_after < 2:
            row = self.rows.setdefault(id_, PlainRow())
        elif id_ in self.waiting and self.waiting[id_].count + 1 >= self.admit_after:
            del self.waiting[id_]
            row = self.rows[id_] = PlainRow()
        else:
            row = self.waiting.setdefault(id_, PlainRow())
            self.shared[slot_of(id_)] = self.shared.get(slot_of(id_), 0.0) + 1
        row.count, row.touched, row.times = row.count + 1, now, row.times + 1

    def shrink(self, rows: dict[int, PlainRow], slot: int, before: int) -> None:
        if self.evict is None:
            return
        now, mine = self.clocks[slot], [id_ for id_ in rows if slot_of(id_) == slot]

        def rank(id_: int) -> tuple[Any, ...]:
            row = rows[id_]
            frequency = (row.touched == now, row.times) if isinstance(self.evict, LeastFrequent) else ()
            return (*frequency, row.touched, id_)

        mine.sort(key=rank)
        many = len(mine) - (SHARE - SHARE // 8) if self.evict.rows and len(mine) > SHARE else 0
        gone = set(mine[:many])
        if isinstance(self.evict, OlderThan):
            age = int(self.evict.seconds * 1000)
            if before // (age // 8) != now // (age // 8):
                gone |= {id_ for id_ in mine if rows[id_].touched < now - age}
        for id_ in gone:
            del rows[id_]


EVICTIONS = [
    None,
    LeastRecent(rows=SHARE * SLOTS),
    LeastFrequent(rows=SHARE * SLOTS),
    OlderThan(0.8),
    OlderThan(0.8, rows=SHARE * SLOTS),
]

PUSHES = st.lists(
    st.tuples(st.lists(st.sampled_from(FEW_SLOTS), max_size=30, unique=True), st.integers(0, 300)), max_size=25
)
"""Ids, and the milliseconds since the push before."""


@pytest.mark.parametrize("admit_after", [0, 2, 4])
@pytest.mark.parametrize("evict", EVICTIONS, ids=repr)
@settings(max_examples=40, deadline=None)
@given(pushes=PUSHES)
def test_ids_have_the_rows_that_a_plain_model_says(
    admit_after: int, evict: Eviction | None, pushes: list[tuple[list[int], int]]
) -> None:
    spec = TableSpec("t", 1, SGD(1.0), Zeros(), admit_after=admit_after, evict=evict)
    holder, plain, at = Holder(spec), PlainTable(admit_after, evict), 10**12
    for ids, later in pushes:
        at += later
        holder.push(ids, at)
        plain.push(ids, at)
        assert {id_: row[0][0] for id_, row in holder.rows().items()} == {
            id_: row.count for id_, row in plain.rows.items()
        }
        used = sorted(set(ids))
        expected = [plain.rows[id_].count if id_ in plain.rows else plain.shared.get(slot_of(id_), 0.0) for id_ in used]
        assert holder.pull(used)[:, 0].tolist() == expected
    if admit_after:
        assert {id_: row[0][0] for id_, row in holder.rows(" (waiting)").items()} == {
            id_: row.count for id_, row in plain.waiting.items()
        }
        shared = holder.rows(" (shared)")
        assert {slot_of(id_): row[0][0] for id_, row in shared.items()} == plain.shared
    if evict is not None and evict.rows:
        assert holder.tables.find_table("t").count <= 3 * SHARE


SPECS = [
    TableSpec("t", 2, Adam(0.1), Uniform(), admit_after=admit_after, evict=evict)
    for admit_after in (0, 3)
    for evict in EVICTIONS
    if admit_after or evict
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.admit_after}-{spec.evict!r}")
@settings(max_examples=25, deadline=None)
@given(pushes=PUSHES, whole=st.integers(0, 24), order=st.integers(0, 2**32), draws=st.integers(0, 2**32))
def test_a_copy_is_what_its_source_is_whatever_else_each_has(
    spec: TableSpec, pushes: list[tuple[list[int], int]], whole: int, order: int, draws: int
) -> None:
    """One has all slots; the other gets them one at a time and in another order, a slot by a copy of its rows."""
    source, copy, at = Holder(spec), Holder(spec), 0
    other = np.random.default_rng(order)
    gradients = np.random.default_rng(draws)
    for number, (ids, later) in enumerate(pushes):
        if number == whole:
            copy = copied(spec, source)
        at += later
        numbers = gradients.standard_normal((len(ids), 2)).astype(np.float32)
        source.push(ids, at, numbers)
        for slot in other.permutation(3):
            one = np.zeros(SLOTS, np.bool_)
            one[slot] = True
            copy.push(ids, at, numbers, one)
    assert copy.all_rows() == source.all_rows()


def copied(spec: TableSpec, source: Holder) -> Holder:
    """A new one, with all that the source has, in other places."""
    made = Holder(spec)
    for each in source.tables.specs:
        piece, _ = source.tables.find_table(each.name).copy_piece(0, ALL_SLOTS, 10**6)
        made.tables.find_table(each.name).put_piece([part[::-1].copy() for part in piece])
    return made


def test_the_rows_and_what_they_share_count_every_record() -> None:
    spec, draws = TableSpec("t", 1, SGD(1.0), Zeros(), admit_after=3), np.random.default_rng(0)
    holder, records = Holder(spec), draws.zipf(1.3, (200, 64)) % 10_000
    for each in records:
        ids, times = np.unique(each, return_counts=True)
        holder.push(ids.tolist(), 0, -times.astype(np.float32)[:, None])
    own, shared = (sum(row[0][0] for row in holder.rows(suffix).values()) for suffix in ("", " (shared)"))
    assert own + shared == records.size
    assert 0 < len(holder.rows()) < len(np.unique(records))
    pushes_of: dict[int, list[int]] = {}
    for each in records:
        for id_ in np.unique(each).tolist():
            pushes_of.setdefault(id_, []).append(int((each == id_).sum()))
    assert {id_: row[0][0] for id_, row in holder.rows().items()} == {
        id_: float(sum(times[2:])) for id_, times in pushes_of.items() if len(times) >= 3
    }


def test_rows_that_are_left_out_are_not_seen() -> None:
    spec = TableSpec("t", 1, SGD(1.0), Zeros(), unusable="skip", admit_after=2)
    holder = Holder(spec)
    for _ in range(3):
        holder.push([1, 2], 0, np.array([[np.nan], [-1.0]], np.float32))
    assert set(holder.rows()) == {2}
    assert holder.pull([1, 2])[:, 0].tolist() == [1.0 if slot_of(1) == slot_of(2) else 0.0, 2.0]
    assert holder.tables.find_table("t").skipped == 3


def test_an_id_without_a_row_begins_as_the_row_that_it_shares() -> None:
    holder = Holder(TableSpec("t", 3, SGD(1.0), Normal(), admit_after=2))
    same = [id_ for id_ in FEW_SLOTS if slot_of(id_) == 1][:2]
    assert (holder.pull(same)[0] == holder.pull(same)[1]).all()
    for _ in range(2):
        holder.push(same[:1], 0)
    first, second = holder.pull(same)
    plain = Holder(TableSpec("t", 3, SGD(1.0), Normal()))
    assert (first == plain.pull(same)[0] + 1.0).all()
    assert (second == plain.pull([int(SLOT_KEYS[1])])[0] + 1.0).all()


def test_each_slot_has_a_key_of_its_own() -> None:
    assert [slot_of(int(key)) for key in SLOT_KEYS] == list(range(SLOTS))


def test_a_limit_in_bytes_is_one_in_rows() -> None:
    spec = TableSpec("t", 4, Adam(), Zeros(), evict=LeastRecent(bytes=5_000_000))
    assert spec.limit == 5_000_000 // spec.row_bytes
    assert spec.row_bytes > 4 * 4 * 3 + 8 + 24


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"admit_after": -1}, "admit_after=-1 must be from 0 to 1048576"),
        ({"admit_after": 2.5}, r"admit_after=2\.5 must be from 0 to 1048576"),
        ({"evict": "lru"}, "evict='lru' must be a LeastRecent, LeastFrequent or OlderThan"),
        ({"evict": LeastRecent(rows=5e7)}, "must say whole numbers of rows or bytes"),  # pyright: ignore[reportArgumentType]
        ({"evict": LeastRecent()}, "must say either rows or bytes"),
        ({"evict": LeastFrequent(rows=5000, bytes=10**9)}, "must say either rows or bytes"),
        ({"evict": LeastRecent(rows=1000)}, "must be at least 1024 rows, here"),
        ({"evict": LeastRecent(bytes=1000)}, "must be at least 1024 rows, here"),
        ({"evict": OlderThan(0.0)}, r"seconds must be from 0\.001 to"),
        ({"evict": OlderThan(float("nan"))}, r"seconds must be from 0\.001 to"),
        ({"name": "t" * 195, "admit_after": 2}, "with admit_after its name has at most 190 characters"),
    ],
)
def test_what_cannot_be_declared_is_said(more: dict[str, Any], words: str) -> None:
    with pytest.raises(TableMisused, match=words):
        replace(TableSpec("t", 1, SGD(1.0), Zeros()), **more).check()


def test_other_ranks_declare_the_same_limits() -> None:
    holder = Holder(TableSpec("t", 1, SGD(1.0), Zeros(), admit_after=2, evict=LeastRecent(rows=2048)))
    for other, words in (
        (TableSpec("t", 1, SGD(1.0), Zeros(), evict=LeastRecent(rows=2048)), "with admit_after 2 in place of 0"),
        (
            TableSpec("t", 1, SGD(1.0), Zeros(), admit_after=2, evict=LeastRecent(rows=4096)),
            r"with evict LeastRecent\(rows=2048, bytes=0\) in place of LeastRecent\(rows=4096, bytes=0\)",
        ),
        (TableSpec("t (shared)", 1, SGD(1.0), Normal()), r"table 't \(shared\)' is there already"),
    ):
        with pytest.raises(TableMisused, match=words):
            holder.tables.open_table(other)
