"""Which offsets of a stream are applied to the rows here (pure): what `marks.py` is for shards with an index.

A lease of a stream is a range of offsets. After a job has gone back to a checkpoint ranges are cut anew, with other
bounds: only a partition and an offset name the same records before and after. So what is kept of a partition is a list
of *stretches*: offsets that are next to each other and in the same state, which is in which slots they are applied, and
which lease was the last that may push them. Neighbours that are in the same state are one stretch. What is applied in
all slots has no lease any more, so a partition that is applied up to some offset is one stretch, and how many there
are follows from the leases in work, and not from how long the stream is.

Before a partition's *floor* nothing is ever leased again: it is applied everywhere, or gone, or was never wanted. The
ledger says so with each lease, and here it counts as applied: so what is not applied is what is still to be done.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .errors import RecordsRefused
from .server_events import Array
from .slot_sets import NO_SLOTS, SlotSet

Partition = tuple[str, str]
"""A stream, and the name of one of its partitions."""

Range = tuple[int, int]
"""The first offset, and the one after the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Offsets in one state.

    Attributes:
        first, stop: from this one to the one before that.
        lease: earlier ones push nothing here; 0: none has begun, or it is all applied.
        applied: in which slots; None: in all that are held.
    """

    first: int
    stop: int
    lease: int = 0
    applied: SlotSet | None = field(default_factory=lambda: NO_SLOTS)

    def has_state_of(self, other: "Stretch") -> bool:
        """Whether both are in the same state."""
        if self.lease != other.lease or (self.applied is None) != (other.applied is None):
            return False
        return self.applied is None or other.applied is None or np.array_equal(self.applied, other.applied)


class OffsetMarks:
    """Those of one server."""

    def __init__(self) -> None:
        self._held = NO_SLOTS
        self._all: dict[Partition, list[Stretch]] = {}

    @property
    def count(self) -> int:
        """How many stretches are kept."""
        return sum(map(len, self._all.values()))

    def hold_slots(self, slots: SlotSet) -> None:
        """See `Marks.hold_slots`."""
        self._held = slots
        for key, stretches in list(self._all.items()):
            self._all[key] = self._join(stretches)

    # -- pushes -------------------------------------------------------------------------------------------------------

    def check_lease(self, key: Partition, first: int, stop: int, lease: int) -> None:
        """Raises RecordsRefused where a later one has begun for some of the offsets."""
        if (last := max(each.lease for each in self._cut(key, first, stop))) > lease:
            raise RecordsRefused(f"{_describe(key, first, stop)} are pushed under lease {lease}, which {last} follows")

    def find_new(self, key: Partition, first: int, stop: int, slots: SlotSet) -> SlotSet:
        """In which of these slots a push of these offsets is. Raises RecordsRefused where it is in part."""
        pieces = self._cut(key, first, stop)
        if all(each.applied is NO_SLOTS for each in pieces):
            return slots
        found = [self._applied_in(each) for each in pieces]
        some, every = np.logical_or.reduce(found), np.logical_and.reduce(found)
        if (slots & some & ~every).any():
            raise RecordsRefused(
                f"{_describe(key, first, stop)} are applied in part: cut the batch at offset {pieces[0].stop}"
            )
        return slots & ~some

    def find_applied(self, key: Partition, first: int, stop: int, slots: SlotSet) -> SlotSet:
        """In which of these slots all of these offsets are applied."""
        return slots & np.logical_and.reduce([self._applied_in(each) for each in self._cut(key, first, stop)])

    def advance(self, key: Partition, first: int, stop: int, slots: SlotSet) -> None:
        """These offsets are applied in these slots, now or before; there may be none of them."""
        if first >= stop:
            self._all.setdefault(key, [])
            return
        pieces = self._cut(key, first, stop)
        self._write(key, [replace(each, applied=self._applied_in(each) | slots) for each in pieces])

    # -- leases -------------------------------------------------------------------------------------------------------

    def begin_lease(self, key: Partition, first: int, stop: int, lease: int) -> None:
        """Pushes of earlier leases are refused from now on."""
        if first < stop:
            pieces = self._cut(key, first, stop)
            self._write(key, [replace(each, lease=max(each.lease, lease)) for each in pieces])

    def find_open(self, key: Partition, first: int, stop: int, slots: SlotSet) -> Range | None:
        """The first of these offsets that are not applied in all of these slots, up to where that changes in any."""
        found: Range | None = None
        before = NO_SLOTS
        for each in self._cut(key, first, stop) if slots.any() else ():
            here = self._applied_in(each) & slots
            if found is None:
                if (slots & ~here).any():
                    found, before = (each.first, each.stop), here
            elif np.array_equal(here, before):
                found = found[0], each.stop
            else:
                break
        return found

    def list_applied(self, dataset: str, slots: SlotSet) -> Mapping[str, list[Range]]:
        """Of each known partition of that stream, what is applied in all of these slots, in order; maybe nothing."""
        found: dict[str, list[Range]] = {}
        for (name, partition), stretches in self._all.items():
            if name == dataset:
                ranges = found.setdefault(partition, [])
                for each in stretches:
                    if (slots & ~self._applied_in(each)).any():
                        continue
                    if ranges and ranges[-1][1] == each.first:
                        ranges[-1] = ranges[-1][0], each.stop
                    else:
                        ranges.append((each.first, each.stop))
        return found

    # -- slots that move ----------------------------------------------------------------------------------------------

    def take_slots(self, slots: SlotSet) -> list[Array]:
        """The marks of these slots, for another server or a file.

        (n,) uint8: the partitions, as JSON. (n, 5) int64, a stretch each: which partition, `first`, `stop`, the lease,
        and whether it is applied in all of the slots. (m, 2) int64: which stretch, and a slot in which it is applied,
        where it is not in all.
        """
        keys = sorted(self._all)
        stretches: list[tuple[int, int, int, int, int]] = []
        apart: list[tuple[int, int]] = []
        for number, key in enumerate(keys):
            for each in self._all[key]:
                applied = self._applied_in(each) & slots
                whole = slots.any() and not (slots & ~applied).any()
                if not whole:
                    apart += ((len(stretches), int(slot)) for slot in np.flatnonzero(applied))
                stretches.append((number, each.first, each.stop, each.lease, int(whole)))
        names = np.frombuffer(json.dumps(keys).encode(), np.uint8)
        return [names, np.array(stretches, np.int64).reshape(-1, 5), np.array(apart, np.int64).reshape(-1, 2)]

    def put_slots(self, slots: SlotSet, arrays: Sequence[Array], *, leased: bool) -> None:
        """What `take_slots` has given: the marks of these slots here, in place of any others; they are held now.

        Args:
            leased: the leases count here as well.
        """
        others = self._held & ~slots
        kept = {
            key: [replace(each, applied=self._applied_in(each) & others) for each in stretches]
            for key, stretches in self._all.items()
        }
        self._held, self._all = others | slots, kept
        names, stretches, apart = arrays or OffsetMarks().take_slots(NO_SLOTS)
        pairs: list[Partition] = json.loads(names.tobytes())
        keys = [(dataset, partition) for dataset, partition in pairs]
        for key in keys:
            self._all.setdefault(key, [])
        exceptions: dict[int, list[int]] = {}
        for number, slot in apart.tolist():
            exceptions.setdefault(number, []).append(slot)
        rows: list[list[int]] = stretches.tolist()
        for number, (key, first, stop, lease, whole) in enumerate(rows):
            applied = slots.copy() if whole else np.zeros_like(slots)
            applied[exceptions.get(number, [])] = True
            self._write(
                keys[key],
                [
                    replace(
                        each,
                        lease=max(each.lease, lease * leased),
                        applied=self._applied_in(each) | (applied & slots),
                    )
                    for each in self._cut(keys[key], first, stop)
                ],
            )
        self.hold_slots(self._held)

    # -- stretches ----------------------------------------------------------------------------------------------------

    def _applied_in(self, stretch: Stretch) -> SlotSet:
        return self._held if stretch.applied is None else stretch.applied

    def _find(self, key: Partition, first: int, stop: int) -> tuple[list[Stretch], int, int]:
        """All of the partition, and which of them have some of these offsets."""
        known = self._all.get(key, [])
        low = bisect_right(known, first, key=lambda each: each.stop)
        return known, low, bisect_left(known, stop, low, key=lambda each: each.first)

    def _cut(self, key: Partition, first: int, stop: int) -> list[Stretch]:
        """These offsets and no others, all of them: also those of which nothing is known."""
        known, low, high = self._find(key, first, stop)
        pieces: list[Stretch] = []
        for each in known[low:high]:
            if each.first > first:
                pieces.append(Stretch(first, each.first))
            pieces.append(replace(each, first=max(first, each.first), stop=min(stop, each.stop)))
            first = pieces[-1].stop
        if first < stop:
            pieces.append(Stretch(first, stop))
        return pieces

    def _write(self, key: Partition, pieces: Sequence[Stretch]) -> None:
        """These, which are next to each other, in place of what is known of their offsets."""
        first, stop = pieces[0].first, pieces[-1].stop
        known, low, high = self._find(key, first, stop)
        before = [replace(each, stop=first) for each in known[low : low + 1] if low < high and each.first < first]
        after = [replace(each, first=stop) for each in known[high - 1 : high] if low < high and each.stop > stop]
        left, right = max(0, low - 1), high + 1
        known[left:right] = self._join([*known[left:low], *before, *pieces, *after, *known[high:right]])
        self._all[key] = known

    def _join(self, stretches: Iterable[Stretch]) -> list[Stretch]:
        """The same, as few as can be."""
        found: list[Stretch] = []
        for stretch in stretches:
            each = self._settle(stretch)
            if each.applied is NO_SLOTS and not each.lease:
                continue
            if found and found[-1].stop == each.first and found[-1].has_state_of(each):
                each = replace(each, first=found.pop().first)
            found.append(each)
        return found

    def _settle(self, stretch: Stretch) -> Stretch:
        """In as few words as can be."""
        applied = self._applied_in(stretch) & self._held
        if not applied.any():
            return replace(stretch, applied=NO_SLOTS)
        if not (self._held & ~applied).any():
            return replace(stretch, lease=0, applied=None)
        return replace(stretch, applied=applied)


def _describe(key: Partition, first: int, stop: int) -> str:
    return f"offsets {first} to {stop} of partition {key[1]!r} of {key[0]!r}"


def choose_open(answers: Iterable[Sequence[int]]) -> Range | None:
    """The first offsets that some server lacks, and no others of those that another lacks: of what `find_open` gave on
    each server."""
    found = sorted((each[0], each[1]) for each in answers if each)
    if not found:
        return None
    first = found[0][0]
    return first, min(stop if begin == first else begin for begin, stop in found)


def write_applied(found: Mapping[str, Sequence[Range]]) -> list[Array]:
    """What `OffsetMarks.list_applied` gave, as the arrays of an answer to `ReadStream`."""
    names = np.frombuffer(json.dumps(list(found)).encode(), np.uint8)
    rows = [(number, *each) for number, ranges in enumerate(found.values()) for each in ranges]
    return [names, np.array(rows, np.int64).reshape(-1, 3)]


def read_applied(answers: Iterable[Sequence[Array]]) -> Mapping[str, list[Range]]:
    """What is applied on all servers, of what each of them answers."""
    common: dict[str, list[Range]] | None = None
    for names, rows in answers:
        partitions: list[str] = json.loads(names.tobytes())
        found: dict[str, list[Range]] = {name: [] for name in partitions}
        for number, first, stop in rows.tolist():
            found[partitions[number]].append((first, stop))
        if common is None:
            common = found
        else:
            common = {name: _overlap(common[name], found[name]) for name in common.keys() & found.keys()}
    return common or {}


def _overlap(one: Sequence[Range], other: Sequence[Range]) -> list[Range]:
    """What is in both."""
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other)
    return sorted(each for each in pairs if each[0] < each[1])
