"""Leased shards for TensorFlow: a `tf.data.Dataset` of batches, and a position that only commits move.

TensorFlow draws ahead, in threads of its own, so what it has drawn is not yet in the model. Batches come out in the
order in which they went in, and each step takes as many as this worker has replicas: a commit covers the oldest ones.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import tensorflow

from ..client.ledger_client import ShardsMisused
from ..client.orders import LeasedPosition, OrderQueue, Reader, Records
from ..client.shards import Shards

__all__ = ["Records", "ShardsDataset", "shards_dataset"]

tf: Any = tensorflow  # Any: it has no types


def shards_dataset(
    source: Shards, read: Callable[[Records], Iterable[Any]], *, batch_size: int, output_signature: Any
) -> "ShardsDataset":
    """Batches of leased shards for `tf.data`; what is in the model, `commit` says.

        source = elastic_run.data.shards("train", 60_000, shard_size=512, epochs=3)
        data = elastic_run.tensorflow.shards_dataset(
            source, read, batch_size=64, output_signature=(tf.TensorSpec((28, 28)), tf.TensorSpec((), tf.int64)))
        for images, labels in data.distributed(strategy):       # through all epochs; without a strategy: data.dataset()
            train_step(images, labels)
            data.commit()                                       # after each step

    Args:
        source: the shards, which nobody else may iterate over; commit="checkpoint", the default.
        read: gives the samples of some records: one for each of `Records.indices`, in that order; arrays, or nested
            tuples and dicts of them. It is called in a thread of TensorFlow's.
        batch_size: records in a batch of one replica; also across shards and epochs. Each worker's last one is smaller.
        output_signature: of one sample, as `tf.data.Dataset.from_generator` takes it: `tf.TensorSpec`s.

    Raises:
        elastic_run.exceptions.ShardsMisused: commit="ack".
        TypeError: batch_size is no whole number from 1.
    """
    return ShardsDataset(source, read, batch_size, output_signature)


class ShardsDataset(LeasedPosition):
    """What `shards_dataset` gives."""

    _draws_ahead = True

    def __init__(
        self, source: Shards, read: Callable[[Records], Iterable[Any]], batch_size: int, output_signature: Any
    ) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"batch_size={batch_size!r} must be a whole number from 1")
        super().__init__(OrderQueue(source))
        if self._queue.acknowledges:
            raise ShardsMisused(
                "a tf.data dataset ends while other workers' shards may still be returned, which is too early with "
                "commit='ack': iterate over the shards themselves"
            )
        self._read = read
        self._batch_size = batch_size
        self._signature = tf.nest.map_structure(_of_batches, output_signature)
        self._replicas = 1
        self._ended = False

    @property
    def most_steps(self) -> int:
        """Steps in all epochs if one replica made them all: what Keras's `fit` wants for a distributed dataset.

        It stops before, when there is nothing left, and says that the input ran out of data.
        """
        layout = self._queue.layout
        return -(-layout.size * layout.epochs // self._batch_size)

    def dataset(self) -> Any:
        """A `tf.data.Dataset` of this worker's batches, through all epochs.

        Each of its elements is one batch of one replica, which `map` and `prefetch` leave so. What changes that, or
        their order (`batch`, `unbatch`, `shuffle`, `filter`, `repeat`, `take`), would have `commit` cover other records
        than those that were used. The iterator of another dataset of this object ends this one's.
        """
        batches = tf.data.Dataset.from_generator(self._batches, output_signature=self._signature)
        options = tf.data.Options()
        options.deterministic = True
        # Each worker leases other records: none is to leave out those that TensorFlow takes for another worker's.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.with_options(options)

    def distributed(self, strategy: Any) -> Any:
        """The same for the replicas of `strategy`, to iterate over or for Keras's `fit`.

        It is `strategy.distribute_datasets_from_function`. `experimental_distribute_dataset` would split each batch
        between the workers, although each worker leases batches of its own.

        Raises:
            elastic_run.exceptions.ShardsMisused: ParameterServerStrategy, whose workers run no Python of the script.
        """
        if getattr(strategy.extended, "_should_use_with_coordinator", False):
            raise ShardsMisused(
                "ParameterServerStrategy makes its datasets on workers that run no Python of this script, so they "
                "cannot lease: lease shards in the chief, and schedule functions with their records"
            )

        def make(context: Any) -> Any:
            self._replicas = max(1, context.num_replicas_in_sync // context.num_input_pipelines)
            return self.dataset()

        return strategy.distribute_datasets_from_function(make)

    def commit(self) -> None:
        """Commits the batches of one step: they are in the model. On every rank, once after each step.

        Costs no round trip. Where this worker has no more batches, and steps with the others only, it does nothing.

        Raises:
            elastic_run.exceptions.ShardsMisused: nothing was drawn for this step.
        """
        given = min(self._queue.given, self._replicas)
        if given:
            self._queue.commit(given)
        elif not self._ended:
            raise ShardsMisused(
                "commit() without a batch: call it once after each step, on a dataset of `distributed(strategy)` or "
                "`dataset()`. experimental_distribute_dataset and unbatch make more steps than there are batches"
            )

    def __iter__(self) -> NoReturn:
        raise TypeError("iterate over dataset() or distributed(strategy): this holds the position of the data")

    def _batches(self) -> Iterator[Any]:
        """For `from_generator`."""
        self._ended = False
        reader = Reader(self._read, self._queue.layout)
        orders = self._queue.loop(lambda: map(reader.__getitems__, self._queue.orders(self._batch_size, 1)))
        for samples in orders:
            yield tf.nest.map_structure(_stacked, *samples)
        self._ended = True


def _of_batches(spec: Any) -> Any:
    return tf.TensorSpec([None, *spec.shape], spec.dtype)


def _stacked(*parts: Any) -> Any:
    return np.stack(parts)
