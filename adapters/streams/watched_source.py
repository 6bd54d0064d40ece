"""One source in one process: its ends as they grow, its records, and what is gone of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ...master.data.ledger import OffsetRange
from ...master.data.stream_ledger import describe_gone
from ..client.channel import say_wait
from ..client.ledger_client import QUIET, REMINDER
from .contract import OffsetsGone, SourceAway, StreamRecord, StreamSource

LOOK_SECONDS = 0.05
"""A source is looked at again after that: so much later than it could be, a new record may be leased."""

RETRY_SECONDS = 0.2
"""A source that was away is asked again after that."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a lease that are gone: `count` of them, before the offset `stop`."""

    stop: int
    count: int


@dataclass(eq=False)
class WatchedSource:
    """What a stream asks of its source.

    Attributes:
        dataset: its name.
        skips: what is gone is counted; else it is an error.
        rank: who asks, for a person.
        empty: the source answers, and never had a partition.
    """

    source: StreamSource
    dataset: str
    skips: bool
    rank: int
    empty: bool = False
    _told: dict[str, OffsetRange] = field(default_factory=dict[str, OffsetRange])
    _found: dict[str, OffsetRange] = field(default_factory=dict[str, OffsetRange])
    _looked: float = 0.0
    _away_since: float | None = None
    _say_at: float = 0.0

    def find_news(self) -> tuple[OffsetRange, ...]:
        """The partitions that have other offsets than when they were last taken as told."""
        now = time.monotonic()
        if now >= self._looked + LOOK_SECONDS:
            try:
                ends = self.source.partitions()
                self.empty = not ends and not self._told
                self._found = {name: OffsetRange(name, first, max(first, end)) for name, (first, end) in ends.items()}
                if ends:
                    self._away_since = None
                else:
                    self._note_away("it has no partition")
            except SourceAway as error:
                self._note_away(error)
            self._looked = time.monotonic()
        return tuple(each for name, each in self._found.items() if self._told.get(name) != each)

    def take_as_told(self, news: tuple[OffsetRange, ...]) -> None:
        """The ledger is told of them."""
        self._told.update((each.partition, each) for each in news)

    def read_range(
        self, partition: str, first: int, stop: int, rest: Callable[[], None]
    ) -> tuple[list[StreamRecord], list[Gap]]:
        """All records of these offsets, and what is gone of them; waits until the source has given them.

        Args:
            rest: is called before each wait for a source that is away.

        Raises OffsetsGone where what is gone is not to be skipped.
        """
        records: list[StreamRecord] = []
        gaps: list[Gap] = []
        while first < stop:
            try:
                found, after = self.source.read(partition, first, stop)
                records += (each for each in found if first <= each.offset < stop)
                if after > first:
                    self._away_since = None
                else:
                    self._note_away(f"partition {partition!r} gives nothing from offset {first} on")
                first = max(first, after)
            except SourceAway as error:
                self._note_away(error)
                rest()
                time.sleep(RETRY_SECONDS)
            except OffsetsGone as error:
                there = stop if error.first is None else min(stop, max(first + 1, error.first))
                if not self.skips:
                    text = describe_gone(self.dataset, OffsetRange(partition, first, there))
                    raise OffsetsGone(f"{text} ({error})", error.first) from error
                gaps.append(Gap(there, there - first))
                first = there
        return records, gaps

    def _note_away(self, why: object) -> None:
        """Tells a person, after a while."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since, self._say_at = now, now + QUIET
        if now >= self._say_at:
            self._say_at = now + REMINDER
            say_wait(self.rank, f"the source of dataset {self.dataset!r} gives nothing: {why}")
