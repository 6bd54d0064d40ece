"""What a script gets of a stream: shards of its offsets, which ranks lease as they do those of files.

clicks = elastic_run.data.stream("clicks", elastic_run.data.KafkaTopic("clicks", "broker:9092"), shard_size=1000)
for shard in clicks:
    for record in shard.records:
        ...
    shard.done()
"""

from collections.abc import Mapping
from typing import Literal, NoReturn, cast

from ...master.data.ledger import DONE, OffsetRange, StreamTerms, Tracking
from ...master.data.shard import Span
from ...master.data.stream import StreamLayout
from ..client import pushes
from ..client.ledger_client import ShardsMisused
from ..client.saves import Saves
from ..client.shards import Shard, Shards
from ..client.whose_ledger import client_of
from .contract import BadSource, StreamRecord, StreamSource
from .stream_leaser import StreamLeaser
from .watched_source import Gap, WatchedSource


class StreamShard(Shard):
    """Offsets of one partition that are leased to this process; `elastic_run.data.stream` gives them.

    It has what a `Shard` has; `file` is the partition, `start` and `stop` are offsets, and `key` begins with both.
    """

    __slots__ = ("_records", "_stream")

    def __init__(self, leaser: StreamLeaser, span: Span, offset: int, end: int) -> None:
        super().__init__(leaser, span, offset, end)
        self._stream = leaser
        self._records: list[StreamRecord] | None = None

    @property
    def partition(self) -> str:
        """Of which partition it is."""
        return self.file

    @property
    def records(self) -> list[StreamRecord]:
        """The records of these offsets, in order, but for those that are done; there may be fewer, or none.

        They are read when they are first asked for, which waits until the source has given them.

        Raises:
            elastic_run.exceptions.OffsetsGone: some are gone; with `lost="skip"` they are counted and left out.
        """
        if self._records is None:
            assert self._stream.watched is not None
            begin = self.start + self.offset
            self._records, gaps = self._stream.watched.read_range(self.partition, begin, begin + len(self), pushes.rest)
            if gaps:
                within = [Gap(gap.stop - self.start, gap.count) for gap in gaps]
                self._stream.gaps.setdefault(self.index, []).extend(within)
        return self._records

    def progress(self, count: int) -> None:
        """Marks the first `count` of `records` as in the model; see `Shard.progress`."""
        if not isinstance(count, int) or isinstance(count, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"progress({count!r}) must be a whole number of records")
        records = self.records
        if not 0 <= count <= len(records):
            raise ShardsMisused(f"progress({count}) of shard {self.key}, which has {len(records)} records to use")
        whole = count == len(records)
        super().progress(len(self) if whole else records[count].offset - self.start - self.offset)

    def _push_to(self, servers: pushes.Pushes, lease: int, begin: int, end: int) -> None:
        offsets = OffsetRange(self.partition, self.start + begin, self.start + end)
        servers.push_offsets(self._stream.layout.order, offsets, lease)


class StreamShards(Shards):
    """The shards of a stream that this rank gets; `elastic_run.data.stream` makes it. See `Shards`.

    Args:
        name, source, shard_size, commit, follow, start, lost: see `stream`.
        environment: None: this process's own.
    """

    def __init__(
        self,
        name: str,
        source: StreamSource,
        *,
        shard_size: int,
        commit: Tracking = "checkpoint",
        follow: bool = True,
        start: Literal["earliest", "latest"] = "earliest",
        lost: Literal["fail", "skip"] = "fail",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if not all(hasattr(source, each) for each in ("name", "partitions", "read")):
            raise BadSource(
                f"the source of stream {name!r} is {source!r}: give a KafkaTopic, LineFiles or StreamSource"
            )
        layout = StreamLayout(name, source.name, shard_size, StreamTerms(follow, start, lost))
        layout.dataset(commit)  # refuses another tracking mode
        client = client_of(environment)
        saves = Saves(environment) if client.rank == 0 else None
        watched = WatchedSource(source, name, lost == "skip", client.rank)
        self._stream = StreamLeaser(layout, commit, client, 0, saves, watched=watched, follows=follow)
        self._lease_by(self._stream)

    def __next__(self) -> StreamShard:
        """The next shard, once there is one; see `Shards`. The loop ends after `stop`, and where the stream ends."""
        if pushes.registered and self._leaser.tracking == "checkpoint":
            raise ShardsMisused(
                f'stream {self._layout.name!r} has commit="checkpoint", and gradients go to tables, which say '
                'themselves what is done: use commit="ack"'
            )
        return cast(StreamShard, super().__next__())

    def next_within(self, seconds: float) -> StreamShard | None:
        """The next shard, or None where there is none within so many seconds: for ranks that step together.

        Raises as `__next__`.
        """
        self._stream.patience = seconds
        try:
            return next(self, None)
        finally:
            self._stream.patience = None

    @property
    def ended(self) -> bool:
        """There will be no more shards for this rank: the stream has an end, or `stop` was called."""
        return self._stream.stopped or (self._stream.ended and not self._stream.queue)

    def stop(self) -> None:
        """Ends this rank's loop before its next shard; from any thread, and from a signal's handler."""
        self._stream.stopped = True

    def part(self, number: int) -> NoReturn:
        """Refuses: a stream is read by the script's own process."""
        raise ShardsMisused(f"stream {self._layout.name!r} has no parts for other processes: read it in this one")

    def mark(self, index: int, offset: int = DONE) -> NoReturn:
        """Refuses, as `part` does."""
        self.part(0)

    def _find_marks(self, servers: pushes.Pushes, span: Span, lease: int, offset: int) -> list[int]:
        """What is between two of them is applied in all of the model, or in the same part of it."""
        offsets = OffsetRange(span.file, span.start + offset, span.stop)
        found = self._stream.find_open(servers, offsets, lease) or (span.stop, span.stop)
        return [each - span.start for each in found]

    def _shard_of(self, span: Span, offset: int, end: int) -> Shard:
        return StreamShard(self._stream, span, offset, end)


def stream(
    name: str,
    source: StreamSource,
    *,
    shard_size: int,
    commit: Tracking = "checkpoint",
    follow: bool = True,
    start: Literal["earliest", "latest"] = "earliest",
    lost: Literal["fail", "skip"] = "fail",
) -> StreamShards:
    """Returns the shards of a stream for this rank: ranges of its offsets, each of which is leased to one rank.

    Every rank declares the same. Nothing is asked for before the first shard is. Where a rank is lost, its shards go to
    others. Call it in the worker.

    Args:
        name: of the dataset, one ledger for each.
        source: a `KafkaTopic`, `LineFiles`, or any `StreamSource`.
        shard_size: offsets in a shard, at most: records of Kafka, bytes of files. At the end of what there is, a shard
            has what there is.
        commit: as of `shards`: "checkpoint", or "ack".
        follow: it goes on with what comes; False: it ends where each partition ended when the job first looked, and
            refuses a source that has no partition then.
        start: "latest" passes over what was there when the job first looked. A position that is restored, or that the
            store has, goes before it.
        lost: what becomes of offsets that are gone before they are used: "fail" ends with `OffsetsGone` or
            `ShardsRefused`, "skip" counts them.

    Returns:
        an iterator of `StreamShard`, to be used in a `with` or until its end.

    Raises:
        elastic_run.exceptions.BadDataset: an argument makes no sense.
        elastic_run.exceptions.BadSource: that is no source.
        elastic_run.exceptions.NoLedger: there are several ranks, and no elastic-run around them.
        elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete.
        TypeError: an argument is of the wrong type.
    """
    return StreamShards(name, source, shard_size=shard_size, commit=commit, follow=follow, start=start, lost=lost)
