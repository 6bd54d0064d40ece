"""A data set without an end: what a lease of its offsets is, and its position in a checkpoint (pure).

The arithmetic of `shard.py` has no part in it: which offsets a shard has is said by the piece that is leased.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import quote

from ...rendezvous.base.frozen import dataclass
from .ledger import POSITION_VERSION, Dataset, OffsetRange, Piece, Position, StreamTerms, Tracking
from .shard import (
    LARGEST,
    TRACKING_MODES,
    BadDataset,
    BadShardsState,
    Span,
    check_name,
    check_saved,
    check_whole,
)

MOST_LEFT = 1000
"""Shards before the end of what rows have, which a ledger that begins from them leases by themselves."""


@dataclass(frozen=True, slots=True)
class StreamSpan(Span):
    """The offsets of one lease; `file` is the partition."""

    @property
    def key(self) -> str:
        """A text that no other offsets have: of one that is done again it begins at the same offset."""
        return f"{quote(self.file, safe='')}-{self.start:020d}"


class StreamLayout:
    """One stream in shards.

    Args:
        name: as of a `Layout`.
        source: what it is read from, in words; another source has others.
        shard_size: offsets in a shard, at most.
        terms: how it is used.

    Raises BadDataset where that makes no sense, TypeError where a value is of the wrong kind.
    """

    def __init__(self, name: str, source: str, shard_size: int, terms: StreamTerms) -> None:
        check_name(name)
        check_whole("shard_size", shard_size, 1, "offsets in a shard")
        if not isinstance(terms.follow, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"follow={terms.follow!r} must be True or False")
        for field, value, allowed in (
            ("start", terms.start, ("earliest", "latest")),
            ("lost", terms.lost, ("fail", "skip")),
        ):
            if value not in allowed:
                raise BadDataset(f"{field}={value!r} is unknown: use one of {', '.join(map(repr, allowed))}")
        if terms.start == "latest" and not terms.follow:
            raise BadDataset('start="latest" with follow=False is no data: it ends where it starts')
        self.name = name
        self.source = source
        self.shard_size = shard_size
        self.terms = terms

    @property
    def order(self) -> str:
        """What names the shards; see `Layout.order`."""
        return f"{self.name}:{zlib.crc32(self.source.encode()):08x}"

    def dataset(self, tracking: Tracking) -> Dataset:
        """As it is declared to the ledger. Raises BadDataset where there is no such tracking mode."""
        if tracking not in TRACKING_MODES:
            raise BadDataset(f"commit={tracking!r} is unknown: use one of {', '.join(map(repr, TRACKING_MODES))}")
        return Dataset(
            self.name,
            LARGEST,
            self.shard_size,
            LARGEST,
            shuffle=False,
            tracking=tracking,
            files=self.source,
            stream=self.terms,
        )

    def span_of(self, piece: Piece) -> Span:
        """The offsets of the shard of which a piece is leased."""
        offsets = piece.offsets
        if offsets is None:
            raise BadDataset(f"the job's master knows no streams, and {self.name!r} is one: start all nodes anew")
        index = piece.shard_index
        return StreamSpan(index, 0, index, offsets.partition, offsets.first, offsets.stop)

    def span(self, shard_index: int) -> Span:
        """There is no such arithmetic. Raises BadDataset."""
        raise BadDataset(f"which offsets shard {shard_index} of {self.name!r} has cannot be worked out")

    def indices(self, span: Span, offset: int = 0) -> Sequence[int]:
        """The offsets, from the `offset`-th on, whether there are records or not."""
        return range(span.start + offset, span.stop)

    def state(self, position: Position) -> dict[str, object]:
        """Plain values for a checkpoint; see `Layout.state`."""
        return {
            "version": POSITION_VERSION,
            "name": self.name,
            "source": self.source,
            "partitions": [[each.partition, each.first, each.stop] for each in position.partitions],
            "todo": [
                [each.partition, each.first, each.stop, piece.offset]
                for piece in position.todo
                if (each := piece.offsets)
            ],
            "leased": position.leased,
            "lost": position.lost,
        }

    def follow_rows(self, applied: Mapping[str, Sequence[tuple[int, int]]]) -> Position:
        """The position of rows of tables.

        Args:
            applied: of each partition, the ranges of offsets that are applied or never wanted, in order.
        """
        todo: list[Piece] = []
        partitions: list[OffsetRange] = []
        for name, ranges in sorted(applied.items()):
            first = 0
            for begin, stop in ranges:
                more = -(-(begin - first) // self.shard_size)
                if len(todo) + more > MOST_LEFT:
                    break  # what is applied after that is found by whoever leases it
                for at in range(first, begin, self.shard_size):
                    offsets = OffsetRange(name, at, min(at + self.shard_size, begin))
                    todo.append(Piece(len(todo), offsets=offsets))
                first = stop
            partitions.append(OffsetRange(name, first, first))
        leased = sum(each.stop - each.first for piece in todo if (each := piece.offsets))
        return Position(len(todo), tuple(todo), tuple(partitions), leased)

    def restored(self, state: Mapping[str, object]) -> Position:
        """The position that `state` says. Raises BadShardsState."""
        check_saved(self.name, state, {"name": self.name, "source": self.source})
        partitions = tuple(self._range(each) for each in self._rows(state, "partitions", 3))
        todo = tuple(
            Piece(index, cast(int, each[3]), offsets=self._range(each))
            for index, each in enumerate(self._rows(state, "todo", 4))
        )
        leased, lost = state.get("leased"), state.get("lost")
        if type(leased) is not int or type(lost) is not int or min(leased, lost) < 0:
            raise self._damaged(f"leased is {leased!r}, and lost {lost!r}")
        for piece in todo:
            offsets = piece.offsets
            if offsets and not 0 <= piece.offset < offsets.stop - offsets.first:
                raise self._damaged(f"{piece.offset} of {offsets.stop - offsets.first} offsets are done")
        if len({each.partition for each in partitions}) < len(partitions):
            raise self._damaged("a partition is there twice")
        return Position(len(todo), todo, partitions, leased, lost)

    def _rows(self, state: Mapping[str, object], field: str, width: int) -> list[Sequence[object]]:
        rows = state.get(field)
        if not isinstance(rows, list | tuple):
            raise self._damaged(f"{field} is {rows!r}")
        for row in cast(Sequence[object], rows):
            values = list(cast(Sequence[object], row)) if isinstance(row, list | tuple) else list[object]()
            if (
                len(values) != width
                or not isinstance(values[0], str)
                or any(type(each) is not int for each in values[1:])
            ):
                raise self._damaged(f"{row!r} is in {field}")
        return list(cast(Sequence[Sequence[object]], rows))

    def _range(self, row: Sequence[object]) -> OffsetRange:
        partition, first, stop = cast(tuple[str, int, int], tuple(row[:3]))
        if not 0 <= first <= stop <= LARGEST:
            raise self._damaged(f"partition {partition!r} has offsets {first} to {stop}")
        return OffsetRange(partition, first, stop)

    def _damaged(self, what: str) -> BadShardsState:
        return BadShardsState(f"the checkpoint's state of dataset {self.name!r} is damaged: {what}")
