"""What every source of a stream gives: the `StreamSource`, which a script or a package may implement as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...master.data.shard import ShardsError


class BadSource(ShardsError, ValueError, public=True):
    """The source of a stream is declared as it cannot be."""


class SourceAway(ShardsError, ConnectionError, public=True):
    """The source does not answer now; it is asked again."""


class OffsetsGone(ShardsError, RuntimeError, public=True):
    """The source has those offsets no more.

    Attributes:
        first: the first offset that it still has, or will have; None: the partition is gone.
    """

    def __init__(self, text: str, first: int | None = None) -> None:
        super().__init__(text)
        self.first = first


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A record.

    Attributes:
        offset: in its partition.
        value: what it is: bytes, of Kafka and of lines.
        key: of Kafka; None where there is none.
        timestamp: seconds since 1970, of Kafka; None where it is not known.
    """

    offset: int
    value: Any  # Any: whatever the source has
    key: Any = None
    timestamp: float | None = None


class StreamSource(Protocol):
    """Partitions of records, each of which has an offset; it is asked in the worker, by one thread.

    An offset is a whole number from 0. The later of two records of a partition has the higher one, and there may be
    gaps. A record stays what it is, and so does its offset. Both methods raise `SourceAway` where the source does not
    answer for a while; they are called again then.

    Attributes:
        name: what it is, in words: the same on every rank and after each restart, another one for other records.
    """

    name: str

    def partitions(self) -> Mapping[str, tuple[int, int]]:
        """By name, each partition's first offset that can be read, and the one after its last. Returns at once.

        It gives all partitions: to the stream, one that the first look did not have came later.

        Raises:
            elastic_run.exceptions.SourceAway: one of them does not answer.
        """
        ...

    def read(self, partition: str, first: int, stop: int) -> tuple[Sequence[StreamRecord], int]:
        """Records from `first` on and before `stop`, in order, and the offset before which there are no others.

        That is `stop` when all were read. It may be less, also `first` where nothing came within a second or so; then
        it is called again. `stop` is at most the end that `partitions` gave.

        Raises:
            elastic_run.exceptions.OffsetsGone: the source does not have the record at `first`, or the next, any more.
        """
        ...
