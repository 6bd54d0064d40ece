"""How far each shard of the data has been applied to the rows here (pure): what makes a gradient count once.

A worker that has a lease of a shard pushes the gradients of its records in the order in which it uses them, and says
with each push which records they are of. The server keeps, for each shard and slot, how far that has come: its *mark*,
which changes together with the rows and moves with them. When a worker is lost, the rest of its shard is leased anew,
from a record that the ledger knows of: what lies between that and the mark is in the rows already. So whoever leases a
shard begins at the least mark and cuts at the others, and what lies below a mark is not applied again.

Nearly always all slots agree about a shard, and one number is kept. Of shards that are *finished* in all slots, nothing
is kept but how many of the dataset's first ones are: no lease of these, whenever it comes, has anything to push.

Shards of a stream have no numbers that last: of these it is kept which offsets are applied, in `offset_marks.py`.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from .errors import RecordsRefused
from .offset_marks import OffsetMarks
from .requests import ForwardLease, PushSource, ReadMarks
from .server_events import Array
from .slot_sets import NO_SLOTS, SlotSet

Shard = tuple[str, int]
"""A dataset and the index of a shard."""

UNTOUCHED = -1
"""The mark where nothing of the shard has been applied: it may begin at any record."""

FINISHED = (1 << 53) - 1
"""The mark where all of the shard has been applied, however many records that are."""

FINISHED_BEFORE = -2
"""In place of a mark, as it goes to another server: the shard is finished, and so are all of the dataset before it."""


class Marks:
    """Those of one server.

    Attributes:
        offsets: those of streams.
    """

    def __init__(self) -> None:
        self.offsets = OffsetMarks()
        self._held = NO_SLOTS
        self._all: dict[Shard, tuple[int, int]] = {}  # the last lease, and the mark of all slots, unless it is in:
        self._apart: dict[Shard, Array] = {}  # by slot
        self._floors: dict[str, int] = {}  # by dataset: shards before that are finished in all slots that are held

    def hold_slots(self, slots: SlotSet) -> None:
        """Which slots this server has from now on: their marks count."""
        self._held = slots
        self.offsets.hold_slots(slots)
        for shard in list(self._apart):
            self._put(shard, self._apart[shard])
            self._raise_floor(shard[0])

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
        if source.partition:
            self.offsets.check_lease(*_offsets_of(source), source.lease)
            return
        lease, _ = self._all.get((source.dataset, source.shard_index), (0, UNTOUCHED))
        if source.lease < lease:
            raise RecordsRefused(
                f"{_describe(source)} are pushed under lease {source.lease}, which lease {lease} follows"
            )

    def find_new(self, source: PushSource, slots: SlotSet) -> SlotSet:
        """As `judge`, whatever the lease: that is the primary's to judge."""
        if source.partition:
            return self.offsets.find_new(*_offsets_of(source), slots)
        shard = source.dataset, source.shard_index
        if shard not in self._apart:
            return slots if _is_new(source, self._common_mark(shard)) else NO_SLOTS
        marks = self._apart[shard]
        new = [mark for mark in np.unique(marks[slots]).tolist() if _is_new(source, mark)]
        return slots & np.isin(marks, new)

    def find_applied(self, source: PushSource, slots: SlotSet) -> SlotSet:
        """In which of these slots all of the push is applied."""
        if source.partition:
            return self.offsets.find_applied(*_offsets_of(source), slots)
        return slots & (self._positions((source.dataset, source.shard_index)) >= source.end)

    def advance(self, source: PushSource, slots: SlotSet) -> None:
        """The push is applied in these slots, now or before."""
        if source.partition:
            self.offsets.advance(*_offsets_of(source), slots)
            return
        shard, end = (source.dataset, source.shard_index), FINISHED if source.last else source.end
        if self._is_finished(shard):
            return
        lease, applied = self._all.get(shard, (0, UNTOUCHED))
        lease = max(lease, source.lease)
        if shard not in self._apart and not (self._held & ~slots).any():
            self._all[shard] = lease, max(applied, end)
        else:
            marks = self._positions(shard).copy()
            marks[slots] = np.maximum(marks[slots], end)
            self._all[shard] = lease, applied
            self._put(shard, marks)
        self._raise_floor(source.dataset)

    def begin_lease(self, dataset: str, shard_index: int, lease: int) -> None:
        """Pushes of earlier leases are refused from now on."""
        if shard_index >= self._floors.get(dataset, 0):
            before, applied = self._all.get((dataset, shard_index), (0, UNTOUCHED))
            self._all[dataset, shard_index] = max(before, lease), applied

    def take_lease(self, asked: ReadMarks | ForwardLease, slots: SlotSet) -> None:
        """A lease begins, with what is said of a stream's partitions in these slots."""
        for floor in asked.floors:
            self.offsets.advance((asked.dataset, floor.partition), floor.first, floor.stop, slots)
        if (here := asked.offsets) is None:
            self.begin_lease(asked.dataset, asked.shard_index, asked.lease)
        else:
            self.offsets.begin_lease((asked.dataset, here.partition), here.first, here.stop, asked.lease)

    def read_lease(self, asked: ReadMarks, slots: SlotSet) -> tuple[int, ...]:
        """What is answered to it: see `Reply.marks`."""
        if (here := asked.offsets) is None:
            return self.read(asked.dataset, asked.shard_index, slots)
        return self.offsets.find_open((asked.dataset, here.partition), here.first, here.stop, slots) or ()

    def take_slots(self, slots: SlotSet) -> tuple[tuple[str, ...], list[Array]]:
        """The marks of these slots, for another server: the names of datasets, two arrays of int64, and more.

        (n, 4): a shard each: which dataset, the shard's index, its last lease, the mark of all slots but those in
        (m, 3): which shard of the first array, the slot, its mark. The others: see `OffsetMarks.take_slots`.
        """
        names = {dataset: number for number, dataset in enumerate(self._floors)}
        shards = [(names[dataset], floor - 1, 0, FINISHED_BEFORE) for dataset, floor in self._floors.items()]
        apart: list[tuple[int, int, int]] = []
        for (dataset, index), (lease, mark) in self._all.items():
            if (marks := self._apart.get((dataset, index))) is not None and slots.any():
                mark = int(marks[slots].min())
                apart += ((len(shards), int(at), int(marks[at])) for at in np.flatnonzero(slots & (marks != mark)))
            shards.append((names.setdefault(dataset, len(names)), index, lease, mark))
        arrays = [np.array(shards, np.int64).reshape(-1, 4), np.array(apart, np.int64).reshape(-1, 3)]
        return tuple(names), [*arrays, *self.offsets.take_slots(slots)]

    def put_slots(self, slots: SlotSet, names: Sequence[str], arrays: Sequence[Array], *, leased: bool = True) -> None:
        """What `take_slots` has given, maybe of more slots: the marks of these here, in place of any others; they are
        held now.

        Args:
            leased: the leases count here as well; else they are of a ledger that is no more.
        """
        shards, apart, *offsets = arrays
        self.offsets.put_slots(slots, offsets, leased=leased)
        apart = apart[slots[apart[:, 1]]]
        others = self._held & ~slots
        before = {shard: self._positions(shard) for shard in self._apart}
        exceptions = _by_shard(apart)
        rows: list[tuple[int, int, int, int]] = shards.tolist()
        floors = {names[name]: index + 1 for name, index, _, mark in rows if mark == FINISHED_BEFORE}
        low = {name: min(floor, self._floors.get(name, 0) if others.any() else floor) for name, floor in floors.items()}
        told = [
            ((names[name], index), lease * leased, mark, exceptions.get(number, []))
            for number, (name, index, lease, mark) in enumerate(rows)
            if mark != FINISHED_BEFORE
        ]
        told += [((name, at), 0, FINISHED, []) for name, floor in floors.items() for at in range(low[name], floor)]
        mine = {shard: kept for shard, kept in self._all.items() if shard[1] >= low.get(shard[0], 0)}
        for name, floor in self._floors.items() if others.any() else ():
            mine |= {(name, at): (0, FINISHED) for at in range(low.get(name, 0), floor)}
        self._held, self._floors, self._all, self._apart = others | slots, low, {}, {}
        for shard, lease, mark, exception in told:
            last, applied = mine.pop(shard, (0, UNTOUCHED))
            self._all[shard] = max(last, lease), mark
            if exception or shard in before or (applied != mark and others.any()):
                marks = before[shard].copy() if shard in before else np.full(len(slots), applied, np.int64)
                marks[slots] = mark
                for slot, other in exception:
                    marks[slot] = other
                self._put(shard, marks)
        for shard, (lease, applied) in mine.items():  # of which the other server knows nothing
            self._all[shard] = lease, UNTOUCHED
            if shard not in before and (applied == UNTOUCHED or not others.any()):
                continue
            marks = before[shard].copy() if shard in before else np.full(len(slots), applied, np.int64)
            marks[slots] = UNTOUCHED
            self._put(shard, marks)
        for name in {name for name, _ in self._all}:
            self._raise_floor(name)

    def _common_mark(self, shard: Shard) -> int:
        """Of all slots, where it is not in `_apart`."""
        if shard[1] < self._floors.get(shard[0], 0):
            return FINISHED
        return self._all.get(shard, (0, UNTOUCHED))[1]

    def _raise_floor(self, dataset: str) -> None:
        """Forgets the first shards of the dataset that are finished."""
        floor = self._floors.get(dataset, 0)
        while self._is_finished((dataset, floor)):
            del self._all[dataset, floor]
            self._floors[dataset] = floor = floor + 1

    def _is_finished(self, shard: Shard) -> bool:
        """In all slots that are held."""
        return shard not in self._apart and self._common_mark(shard) == FINISHED

    def _positions(self, shard: Shard) -> Array:
        """The mark of each slot, not to be changed."""
        if (found := self._apart.get(shard)) is not None:
            return found
        return np.full(len(self._held), self._common_mark(shard), np.int64)

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


def _offsets_of(source: PushSource) -> tuple[tuple[str, str], int, int]:
    """Of a stream's push."""
    return (source.dataset, source.partition), source.begin, source.end


def _describe(source: PushSource) -> str:
    return f"records {source.begin} to {source.end} of shard {source.shard_index} of {source.dataset!r}"


def _by_shard(apart: Array) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    rows: Iterable[tuple[int, int, int]] = apart.tolist()
    for number, slot, mark in rows:
        found.setdefault(number, []).append((slot, mark))
    return found
