"""Orders: which records of which leased shards make the next batch, and which of the batches are committed.

The process that trains leases, cuts orders, and counts the batches that were given out; whoever reads needs an order,
and no connection. So what a commit covers follows from counting, whatever a framework's loader has fetched ahead.

Of each shard the orders are given out from its beginning to its end, so the records in the model are its first ones.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from ...master.data.shard import Layout, Span
from ...master.data.stream import StreamLayout
from . import pushes
from .ledger_client import HELD, ShardsMisused, ShardsNotDone
from .shards import Shard, Shards
from .steps import Steps

_END = object()


@dataclass(frozen=True, slots=True)
class Records:
    """What the function `read` of an `ElasticIterableDataset` gets: the rest of a shard, or a part of it.

    Attributes:
        epoch, number, file, start, stop, key: of the shard.
        offset: how many of its records, in the order of their use, come before these.
        indices: the records, within the file where there is one; one sample is expected for each, in this order.
    """

    epoch: int
    number: int
    file: str
    start: int
    stop: int
    key: str
    offset: int
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, slots=True)
class Piece:
    """Records `start` to before `stop` of a span, in the order of their use.

    Attributes:
        end: how far to read ahead where nothing is open at `start` yet: to the end of the shard if more orders for the
            same worker follow, else to `stop`.
    """

    span: Span
    start: int
    stop: int
    end: int


Order = tuple[Piece, ...]


@dataclass(slots=True)
class _Held:
    """A shard of this rank; all is counted from the shard's beginning, and no order goes over one of the `edges`."""

    shard: Shard
    span: Span
    edges: list[int]
    committed: int
    drawn: int

    @property
    def left(self) -> int:
        """Records that are in no order yet."""
        return len(self.span) - self.drawn

    def draw(self, wanted: int) -> int:
        """Draws so many at most; where that ends."""
        self.drawn = min(self.drawn + wanted, next((edge for edge in self.edges if edge > self.drawn), self.drawn))
        return self.drawn


class OrderQueue:
    """Leases, cuts orders, and knows which were given out and which committed; in the main process.

    Where gradients go to tables, an order is of one shard, and so is a commit: it pushes what was computed from it.
    """

    def __init__(self, source: Shards) -> None:
        self.source = source
        layout = source._layout  # pyright: ignore[reportPrivateUsage]
        if isinstance(layout, StreamLayout):
            raise ShardsMisused(f"{layout.name!r} is a stream, whose records have no numbers: iterate over its shards")
        self.layout = layout
        self.acknowledges = source._leaser.tracking == "ack"  # pyright: ignore[reportPrivateUsage]
        self._held: dict[int, _Held] = {}  # by shard index, in the order in which they were leased
        self._waiting: deque[Order] = deque()  # in the loader
        self._given: deque[Order] = deque()  # by the loader, and not committed
        self._loops = 0
        self._committed = False
        self._counted = Steps()

    @property
    def given(self) -> int:
        """Batches that were given out and are not committed."""
        return len(self._given)

    @property
    def in_vain(self) -> bool:
        """Something was given out, and nothing ever committed."""
        return bool(self._given) and not self._committed

    def loop(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """One loop over what `begin` makes of `orders`; the loop before it is over."""
        if self._given and pushes.registered:
            raise ShardsMisused(
                f"another loop is begun, and {len(self._given)} batches of the one before are not committed: what was "
                "computed from them may go to tables with the next, and is computed again. Call commit() before a loop "
                "is left"
            )
        self._loops += 1
        self._given.clear()
        return self._loop(self._loops, begin)

    def _loop(self, number: int, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        self._check(number)
        while self._held or self._lease():
            self._waiting.clear()
            given_out = begin()
            while (batch := next(given_out, _END)) is not _END:
                self._given.append(self._waiting.popleft())
                yield batch
                self._check(number)
            if self._given and self.acknowledges:
                raise ShardsNotDone(
                    f"{len(self._given)} batches are not committed, and no others are available now: call commit() "
                    "before asking for the next batch; or commit these, and start the loop again"
                )
            if self._given:
                return  # a commit may follow

    def _check(self, number: int) -> None:
        if number != self._loops:
            raise ShardsMisused(
                "this loop over the loader has ended, because another one was started: only one loop at a time can "
                "iterate over a dataset"
            )

    def orders(self, count: int, workers: int) -> Iterator[Order]:
        """The next batches of `count` records, for each worker in turn, until there is nothing to lease for now."""
        rest = deque(self._held.values())  # of a loop that was left; or just leased
        for held in rest:
            held.drawn = held.committed
        at: list[_Held | None] = [None] * workers
        dry = False
        for worker in cycle(range(workers)):
            order: list[Piece] = []
            wanted = count
            while wanted:
                held = at[worker]
                if held is None or not held.left:
                    held = rest.popleft() if rest else None if dry else self._lease()
                    if held is None:  # helps whoever has most
                        dry = True
                        held = max((one for one in at if one and one.left), key=lambda one: one.left, default=None)
                        if held is None:
                            break
                    at[worker] = held
                start, stop = held.drawn, held.draw(wanted)
                order.append(Piece(held.span, start, stop, stop if dry else len(held.span)))
                wanted = 0 if pushes.registered else wanted - (stop - start)  # a push is of one shard
            if not order:
                return
            self._waiting.append(tuple(order))
            yield self._waiting[-1]

    def _lease(self) -> _Held | None:
        """Another shard; None where there is none for now."""
        if len(self._held) >= HELD:
            raise ShardsNotDone(
                f"{HELD} shards are started and not committed: call commit() after each step; if you do, use larger "
                "shards, or prefetch less (batch_size, num_workers, prefetch_factor)"
            )
        try:
            taken = self.source._take_whole()  # pyright: ignore[reportPrivateUsage]
        except ShardsNotDone:
            if not self._held:
                raise  # somebody else iterates over the source
            return None
        if taken is None:
            return None
        shard, edges = taken
        held = _Held(shard, self.layout.span(shard.index), edges, shard.offset, shard.offset)
        self._held[shard.index] = held
        return held

    def commit(self, batches: int | None) -> None:
        """See `ElasticIterableDataset.commit`."""
        if batches is not None and (not isinstance(batches, int) or isinstance(batches, bool) or batches < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"commit({batches!r}) must be a whole number of batches from 1")
        if not self._given:
            raise ShardsMisused(
                "commit() although nothing was given out since the last commit, or since this loop began: call it once "
                "per optimizer step, after it"
            )
        count = len(self._given) if batches is None else batches
        if count > len(self._given):
            raise ShardsMisused(
                f"commit({count}) although only {len(self._given)} batches were given out and not committed"
            )
        if count > 1 and pushes.registered:
            raise ShardsMisused(
                f"commit({'' if batches is None else batches}) of {count} batches, and gradients go to tables, each "
                "with the records that it is of: call commit(1) after each backward(), before the next"
            )
        moved: dict[int, int] = {}
        for order in islice(self._given, count):
            moved.update((piece.span.shard_index, piece.stop) for piece in order)
        for shard_index, stop in moved.items():
            held = self._held[shard_index]
            if stop < len(held.span):
                held.shard.progress(stop - held.shard.offset)
            else:
                held.shard.done()
                del self._held[shard_index]
            held.committed = stop
        for _ in range(count):  # not before: what servers refuse can be committed again
            self._given.popleft()
        self._committed = True
        self._counted.committed()


class LeasedPosition:
    """The position of a dataset of leased shards, or of its loader: only commits move it."""

    _draws_ahead = False  # what was given out may not be in any step yet

    def __init__(self, queue: OrderQueue) -> None:
        self._queue = queue

    def state_dict(self, step: int | None = None) -> dict[str, object]:
        """Returns the position that the commits of all ranks make. Collective, as `elastic_run.data.Shards.state_dict`.

        Args:
            step: compared between the ranks, where it is given.

        Raises:
            elastic_run.exceptions.ShardsMisused: commit="ack", whose position is in the job's store.
            elastic_run.exceptions.ShardsRefused: the ranks give different steps.
            elastic_run.exceptions.RoundOver: the job is in another round.
        """
        if self._queue.in_vain and not self._draws_ahead:
            warnings.warn(
                "state_dict() was called after batches were drawn and none was committed: this checkpoint repeats "
                "them; call commit() after each optimizer step",
                RuntimeWarning,
                stacklevel=2,
            )
        return self._queue.source.state_dict(step)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Sets the position: before the first batch, on every rank. Batch size and number of workers may differ.

        Args:
            state: what `state_dict` gave.

        Raises:
            elastic_run.exceptions.BadShardsState: the state is of another dataset, or damaged.
            elastic_run.exceptions.ShardsMisused: it comes after the first batch, or with commit="ack".
        """
        self._queue.source.load_state_dict(state)


@dataclass(slots=True)
class _Open:
    """What is being read: the next sample is of record `at` of that shard, and the last of the one before `end`."""

    shard_index: int
    samples: Iterator[Any]
    at: int
    end: int


class Reader:
    """Reads what orders say, in whichever process the loader has it."""

    def __init__(self, read: Callable[[Records], Iterable[Any]], layout: Layout) -> None:
        self._read = read
        self._layout = layout
        self._open: _Open | None = None
        self._indices: tuple[int, Sequence[int]] = (-1, ())  # with their shard index

    def __getitems__(self, order: Order) -> list[Any]:
        """The samples of one batch."""
        return [sample for piece in order for sample in self._samples(piece)]

    def _samples(self, piece: Piece) -> list[Any]:
        found, self._open = self._open, None
        if found is None or (found.shard_index, found.at) != (piece.span.shard_index, piece.start):
            found = _Open(piece.span.shard_index, iter(self._read(self._records(piece))), piece.start, piece.end)
        samples = list(islice(found.samples, piece.stop - piece.start))
        found.at += len(samples)
        if found.at < piece.stop:
            raise ShardsMisused(
                f"read() gave too few samples for {_named(piece)}: they ended before record {found.at} of it"
            )
        if found.at < found.end:
            self._open = found
        elif next(found.samples, _END) is not _END:  # this also lets a generator close its file
            raise ShardsMisused(f"read() gave too many samples for {_named(piece)}: give one for each of `indices`")
        return samples

    def _records(self, piece: Piece) -> Records:
        span = piece.span
        if self._indices[0] != span.shard_index:
            self._indices = span.shard_index, self._layout.indices(span)
        indices = self._indices[1][piece.start : piece.end]
        return Records(span.epoch, span.number, span.file, span.start, span.stop, span.key, piece.start, indices)


def _named(piece: Piece) -> str:
    span = piece.span
    file = f" of {span.file!r}" if span.file else ""
    return f"shard {span.key} (records {span.start} to {span.stop}{file})"
