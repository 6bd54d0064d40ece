"""How far each shard of the data has been applied to the rows here (pure): what makes a gradient count once.

A worker that has a lease of a shard pushes the gradients of its records in the order in which it uses them, and says
with each push which records they are of. The server keeps, for each shard and slot, how far that has come: its *mark*,
which changes together with the rows and moves with them. When a worker is lost, the rest of its shard is leased anew,
from a record that the ledger knows of: what lies between that and the mark is in the rows already. So whoever leases a
shard begins at the least mark and cuts at the others, and what lies below a mark is not applied again.

Nearly always all slots agree about a shard, and one number is kept.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from .requests import PushSource
from .server_events import Array
from .slot_sets import NO_SLOTS, SlotSet

Shard = tuple[str, int]
"""A dataset and the index of a shard."""

UNTOUCHED = -1
"""The mark where nothing of the shard has been applied: it may begin at any record."""


class RecordsRefused(Exception):
    """Nothing of the push may be applied; the message says why."""


class Marks:
    """Those of one server."""

    def __init__(self) -> None:
        self._held = NO_SLOTS
        self._all: dict[Shard, tuple[int, int]] = {}  # the last lease, and the mark of all slots, unless it is in:
        self._apart: dict[Shard, Array] = {}  # by slot

    def hold_slots(self, slots: SlotSet) -> None:
        """Which slots this server has from now on: their marks count."""
        self._held = slots
        for shard in list(self._apart):
            self._put(shard, self._apart[shard])

    def read(self, dataset: str, shard_index: int, slots: SlotSet) -> tuple[int, ...]:
        """How many records of the shard are applied: each number that is true of some of these slots, sorted."""
        found = self._positions((dataset, shard_index))[slots]
        return tuple(np.unique(np.maximum(found, 0)).tolist())

    def judge(self, source: PushSource, slots: SlotSet) -> SlotSet:
        """In which of these slots the push is new. Raises RecordsRefused."""
        if source.begin >= source.end:
            raise RecordsRefused(f"{_describe(source)} are none")
        self.check_lease(source)
        return self.find_new(source, slots)

    def check_lease(self, source: PushSource) -> None:
        """Raises RecordsRefused where a later one has begun."""
        lease, _ = self._all.get((source.dataset, source.shard_index), (0, UNTOUCHED))
        if source.lease < lease:
            raise RecordsRefused(
                f"{_describe(source)} are pushed under lease {source.lease}, which lease {lease} follows"
            )

    def find_new(self, source: PushSource, slots: SlotSet) -> SlotSet:
        """As `judge`, whatever the lease: that is the primary's to judge."""
        shard = source.dataset, source.shard_index
        if shard not in self._apart:
            return slots if _is_new(source, self._all.get(shard, (0, UNTOUCHED))[1]) else NO_SLOTS
        marks = self._apart[shard]
        new = [mark for mark in np.unique(marks[slots]).tolist() if _is_new(source, mark)]
        return slots & np.isin(marks, new)

    def find_applied(self, source: PushSource, slots: SlotSet) -> SlotSet:
        """In which of these slots all of the push is applied."""
        return slots & (self._positions((source.dataset, source.shard_index)) >= source.end)

    def advance(self, source: PushSource, slots: SlotSet) -> None:
        """The push is applied in these slots, now or before."""
        shard = source.dataset, source.shard_index
        lease, applied = self._all.get(shard, (0, UNTOUCHED))
        lease = max(lease, source.lease)
        if shard not in self._apart and not (self._held & ~slots).any():
            self._all[shard] = lease, max(applied, source.end)
            return
        marks = self._positions(shard).copy()
        marks[slots] = np.maximum(marks[slots], source.end)
        self._all[shard] = lease, applied
        self._put(shard, marks)

    def begin_lease(self, dataset: str, shard_index: int, lease: int) -> None:
        """Pushes of earlier leases are refused from now on."""
        before, applied = self._all.get((dataset, shard_index), (0, UNTOUCHED))
        self._all[dataset, shard_index] = max(before, lease), applied

    def take_slots(self, slots: SlotSet) -> tuple[tuple[str, ...], list[Array]]:
        """The marks of these slots, for another server: the names of datasets, and two arrays of int64.

        (n, 4): a shard each: which dataset, the shard's index, its last lease, the mark of all slots but those in
        (m, 3): which shard of the first array, the slot, its mark.
        """
        names: dict[str, int] = {}
        shards: list[tuple[int, int, int, int]] = []
        apart: list[tuple[int, int, int]] = []
        for (dataset, index), (lease, mark) in self._all.items():
            if (marks := self._apart.get((dataset, index))) is not None and slots.any():
                mark = int(marks[slots].min())
                apart += ((len(shards), int(at), int(marks[at])) for at in np.flatnonzero(slots & (marks != mark)))
            shards.append((names.setdefault(dataset, len(names)), index, lease, mark))
        return tuple(names), [np.array(shards, np.int64).reshape(-1, 4), np.array(apart, np.int64).reshape(-1, 3)]

    def put_slots(self, slots: SlotSet, names: Sequence[str], shards: Array, apart: Array) -> None:
        """What `take_slots` has given: the marks of these slots here, in place of any others; they are held now."""
        others = self._held & ~slots
        before = {shard: self._positions(shard) for shard in self._apart}
        mine, self._apart = self._all, {}
        self._held, self._all = others | slots, {}
        exceptions = _by_shard(apart)
        rows: Iterable[tuple[int, int, int, int]] = shards.tolist()
        for number, (name, index, lease, mark) in enumerate(rows):
            shard = names[name], index
            last, applied = mine.pop(shard, (0, UNTOUCHED))
            self._all[shard] = max(last, lease), mark
            if number in exceptions or shard in before or (applied != mark and others.any()):
                marks = before[shard].copy() if shard in before else np.full(len(slots), applied, np.int64)
                marks[slots] = mark
                for slot, exception in exceptions.get(number, ()):
                    marks[slot] = exception
                self._put(shard, marks)
        for shard, (lease, applied) in mine.items():  # of which the other server knows nothing
            self._all[shard] = lease, UNTOUCHED
            if shard not in before and (applied == UNTOUCHED or not others.any()):
                continue
            marks = before[shard].copy() if shard in before else np.full(len(slots), applied, np.int64)
            marks[slots] = UNTOUCHED
            self._put(shard, marks)

    def _positions(self, shard: Shard) -> Array:
        """The mark of each slot, not to be changed."""
        if (found := self._apart.get(shard)) is not None:
            return found
        return np.full(len(self._held), self._all.get(shard, (0, UNTOUCHED))[1], np.int64)

    def _put(self, shard: Shard, marks: Array) -> None:
        """Keeps one number where all slots that are held agree."""
        held = marks[self._held]
        if len(held) and (held == held[0]).all():
            self._apart.pop(shard, None)
            self._all[shard] = self._all[shard][0], int(held[0])
        else:
            self._apart[shard] = marks


def _is_new(source: PushSource, applied: int) -> bool:
    """Whether a push is, in slots of that mark. Raises RecordsRefused."""
    if source.begin < applied < source.end:
        raise RecordsRefused(f"{_describe(source)} are applied in part: cut the batch at record {applied}")
    if UNTOUCHED < applied < source.begin:
        raise RecordsRefused(f"{_describe(source)} do not follow those before them: {applied} records are applied")
    return applied in (source.begin, UNTOUCHED)


def _describe(source: PushSource) -> str:
    return f"records {source.begin} to {source.end} of shard {source.shard_index} of {source.dataset!r}"


def _by_shard(apart: Array) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    rows: Iterable[tuple[int, int, int]] = apart.tolist()
    for number, slot, mark in rows:
        found.setdefault(number, []).append((slot, mark))
    return found
