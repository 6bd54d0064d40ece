"""Leased shards for PyTorch: batches of records that each rank asks for, and a position that only commits move.

The main process leases, and the loader's workers get *orders* (`client/orders.py`), through the loader's own queue.
Each of W workers has a shard of its own: torch deals orders out in turn, and every W-th is cut from the same shard, so
that a worker reads a shard in one go. Another worker could read it as well, from where the order begins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn, TypeVar, cast

from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from ..client import pushes
from ..client.ledger_client import ShardsMisused
from ..client.orders import LeasedPosition, OrderQueue, Reader, Records
from ..client.shards import Shards

__all__ = ["ElasticIterableDataset", "ElasticLoader", "Records"]

T = TypeVar("T")


class _MovedByCommits(LeasedPosition):
    """What a dataset of leased shards and its loader have in common."""

    def commit(self, batches: int | None = None) -> None:
        """Commits what was given out: it is in the model, or its output is written. After the step, before a save.

        Args:
            batches: the oldest so many of those not committed, where something between the loader and the step
                draws ahead (samples, in a plain loop); None: all.

        Costs no round trip; with tables it pushes the rows' gradients, of one batch: call it after each `backward()`.

        Raises:
            elastic_run.exceptions.ShardsMisused: fewer batches were given out since the last commit; with tables: it is
                of several.
        """
        self._queue.commit(batches)


class ElasticIterableDataset(_MovedByCommits, IterableDataset[T]):
    """Samples of leased shards; what is in the model, `commit` says.

        source = elastic_run.data.shards("train", [("a.csv", 1000), ("b.csv", 700)], shard_size=256, epochs=3)
        dataset = ElasticIterableDataset(source, read)
        loader = dataset.loader(batch_size=32, num_workers=4)
        if checkpoint: dataset.load_state_dict(checkpoint["data"])      # on every rank
        for batch in loader:                                            # through all epochs
            ...                                                         # forward, backward
            optimizer.step()
            loader.commit()                                             # what was given out is in the model
            if step % 100 == 0: position = dataset.state_dict(step)     # every rank

    Loader workers get orders from the main process and lease nothing themselves: so it works without a launcher, and a
    commit covers exactly the batches that were given out. A plain `DataLoader(dataset, batch_size=32)` does as well,
    with `dataset.commit()`; but without workers, `drop_last` and commit="ack".

    A loop that is left and begun again goes on after the last commit, and the loop before it is over. Batches may span
    shards and epochs. Each rank's last one is smaller.

    Args:
        source: the shards, which nobody else may iterate over.
        read: gives the samples of some records: one for each of `Records.indices`, in that order. Files are best read
            lazily, by a generator. It is called in the loader's workers, where there are any.
    """

    def __init__(self, source: Shards, read: Callable[[Records], Iterable[T]]) -> None:
        super().__init__(OrderQueue(source))
        self._read = read

    def __iter__(self) -> Iterator[T]:
        """One sample after the other, in this process.

        Raises:
            elastic_run.exceptions.ShardsMisused: in a loader's worker, with commit="ack", or with tables on servers.
        """
        if get_worker_info() is not None:
            _refuse_to_be_sent()
        if self._queue.acknowledges:
            raise ShardsMisused(
                "a plain loop over an ElasticIterableDataset ends while other workers' shards may still be returned, "
                "which is too early with commit='ack': use dataset.loader(batch_size=...)"
            )
        if pushes.registered:
            raise ShardsMisused(
                "gradients go to tables, with the records of a batch, and a plain loop gives out samples: use "
                "dataset.loader(batch_size=...)"
            )
        reader = Reader(self._read, self._queue.layout)
        return self._queue.loop(lambda: chain.from_iterable(map(reader.__getitems__, self._queue.orders(1, 1))))

    def loader(self, batch_size: int, *, num_workers: int = 0, **arguments: Any) -> "ElasticLoader":
        """A loader of batches, with worker processes or without.

        Args:
            batch_size: records in a batch; also across shards. The last batch of this rank may have fewer; with tables
                no batch is of two shards, and the last one of each may have fewer.
            num_workers: processes that read, each a shard of its own.
            arguments: others of torch's DataLoader; Any: as they are there.

        Returns:
            the loader, which is to be iterated over instead of this dataset.

        Raises:
            elastic_run.exceptions.ShardsMisused: an argument would lose records, or their order.
            TypeError: batch_size is no number.
        """
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"batch_size={batch_size!r} must be a whole number from 1")
        for name, fine, why in (
            ("drop_last", False, "the records of a smaller batch would be left out, and their shards never be done"),
            ("in_order", True, "a commit covers batches in their order"),
            ("shuffle", False, "the order is that of shards(), which has an argument `shuffle`"),
            ("sampler", None, "the shards determine the next records"),
            ("batch_sampler", None, "the shards determine the next records"),
        ):
            if (given := arguments.pop(name, fine)) not in (fine, None):
                raise ShardsMisused(f"loader() with {name}={given!r}: {why}; leave it out")
        return ElasticLoader(self._queue, self._read, batch_size, num_workers, arguments)

    def __reduce__(self) -> NoReturn:
        _refuse_to_be_sent()


class ElasticLoader(_MovedByCommits):
    """What `ElasticIterableDataset.loader` gives: an iterable of batches, as torch's DataLoader collates them.

    One loop goes through all epochs. With commit="ack" it ends when all shards of all ranks are done.

    Raises:
        elastic_run.exceptions.ShardsNotDone: from a loop with commit="ack", where the next batch is asked for when
            there is none and some are not committed.
    """

    def __init__(
        self,
        queue: OrderQueue,
        read: Callable[[Records], Iterable[Any]],
        batch_size: int,
        num_workers: int,
        arguments: Mapping[str, Any],  # Any: torch's arguments
    ) -> None:
        super().__init__(queue)
        self._loader: DataLoader[Any] = DataLoader(
            cast("Dataset[Any]", Reader(read, queue.layout)),  # torch asks for no more than `__getitems__`
            batch_sampler=_Sampler(queue, batch_size, max(1, num_workers)),
            num_workers=num_workers,
            **arguments,
        )

    def __iter__(self) -> Iterator[Any]:  # Any: what collate_fn makes
        return self._queue.loop(lambda: iter(self._loader))


@dataclass(frozen=True, slots=True)
class _Sampler:
    """What torch's DataLoader takes for the batches' indices."""

    queue: OrderQueue
    count: int
    workers: int

    def __iter__(self) -> Iterator[Any]:  # Any: torch believes that an index is a number
        return self.queue.orders(self.count, self.workers)


def _refuse_to_be_sent() -> NoReturn:
    raise ShardsMisused(
        "an ElasticIterableDataset leases in the main process, and a DataLoader would send it to its workers: use "
        "dataset.loader(batch_size=..., num_workers=...), which gives them work"
    )
