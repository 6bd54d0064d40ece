"""Embeddings whose rows are on the job's servers, as a layer of Keras; and Keras's `fit` over one shard of the data."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow

from ..client.shards import Shard
from ..servers import specs
from ..servers.errors import TableMisused
from ..servers.row_table import RowTable
from .checkpoint import check_single_steps

tf: Any = tensorflow  # Any: it has no types


class EmbeddingLayer(tf.keras.layers.Layer):
    """Looks rows up by id. A row is made on the job's servers when its id is first trained on; nobody says how many.

    The gradients of a step are pushed by the call that says of which records they are: `shard.progress(n)` or
    `shard.done()`. The layer has one variable, a zero: with it a tape remembers the rows, and every
    `GradientTape.gradient` that goes through them adds to their gradients. With `trainable=False` none does.

    Args:
        name: of the table: one for each, in a job.
        dim: numbers in a row.
        optimizer: of the rows, from `elastic_run.servers`; that of the model has nothing to do with them.
        initializer: what a row is before its first gradient; None: `Normal()`.
        seed: of the initializer.
        unusable: what is done with gradients that are no finite numbers: "refuse" the push, or "skip" those rows.
        max_staleness: steps that any other worker of the job may be behind this one when it pulls rows to train on;
            else it waits. A step is a call that names records. 0: all make their steps together. None: nobody waits.

    Raises:
        elastic_run.exceptions.TableMisused: the job has no servers, other ranks declare the table otherwise, or Keras
            does not compute with TensorFlow.
        elastic_run.exceptions.ServerGone: the server does not answer.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        optimizer: specs.Optimizer,
        initializer: specs.Initializer | None = None,
        *,
        seed: int = 0,
        unusable: Literal["refuse", "skip"] = "refuse",
        max_staleness: int | None = None,
    ) -> None:
        if (backend := tf.keras.backend.backend()) != "tensorflow":
            raise TableMisused(f"table {name!r}: Keras computes with {backend}; start it with KERAS_BACKEND=tensorflow")
        layer = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip("_-") or "table"  # what a scope of TensorFlow may have
        super().__init__(name=layer, dtype="float32")  # pyright: ignore[reportUnknownMemberType]  # Keras has no types
        self.supports_jit = False  # it asks servers
        self._table = RowTable(
            name, dim, optimizer, initializer, seed=seed, unusable=unusable, max_staleness=max_staleness
        )
        self._zero = self.add_weight(name="zero", shape=(), initializer="zeros", trainable=True)

    def call(self, ids: Any, training: bool | None = None) -> Any:
        """The rows of `ids` (int64, any shape): ids.shape + (dim,), float32.

        Args:
            training: False, as in `evaluate` and `predict`: the rows as they are now; nobody is waited for.

        Raises:
            elastic_run.exceptions.TableMisused: the ids are no int64, or nothing says of which records they are. Within
                a `tf.function`, as in `fit`, TensorFlow makes a `tf.errors.OpError` of each, with its words.
            elastic_run.exceptions.ServerGone: the server does not answer.
        """
        ids = tf.convert_to_tensor(ids)
        if ids.dtype != tf.int64:
            raise TableMisused(
                f"table {self._table.spec.name!r}: ids are {ids.dtype.name}, and must be int64: a model begins with "
                'keras.Input(shape, dtype="int64")'
            )

        shape = self.compute_output_shape(ids.shape)
        if not self.trainable:
            return self._run(self._table.rows, (ids,), shape)
        pull = self._table.rows if training is False else self._table.pull

        @tf.custom_gradient
        def look_up(zero: Any) -> Any:
            def push(gradients: Any) -> Any:
                return self._run(self._push, (ids, gradients), zero.shape)

            return self._run(pull, (ids,), shape), push

        return look_up(tf.convert_to_tensor(self._zero))

    def _push(self, ids: Any, gradients: Any) -> Any:
        """The gradient of the layer's zero."""
        self._table.push(ids, gradients)
        return np.float32(0.0)

    @staticmethod
    def _run(function: Any, inputs: tuple[Any, ...], shape: Any) -> Any:
        """With arrays: now, or each time that a graph gets there."""
        if tf.executing_eagerly():
            return tf.convert_to_tensor(function(*(each.numpy() for each in inputs)))
        result = tf.numpy_function(function, inputs, tf.float32)
        result.set_shape(shape)
        return result

    def compute_output_shape(self, input_shape: Any) -> Any:
        """For Keras: `input_shape` + (dim,)."""
        return (*input_shape, self._table.spec.columns)

    def get_config(self) -> Any:
        """For Keras, when the whole model is saved, which cannot be.

        Raises:
            elastic_run.exceptions.TableMisused: always.
        """
        raise TableMisused(
            f"table {self._table.spec.name!r}: its rows are on the job's servers, so the model cannot be saved whole: "
            "save the rest by model.save_weights(), and the rows by elastic_run.servers.export()"
        )

    def prefetch(self, ids: Any) -> None:
        """Asks for the rows of the next batch, and does not wait: the call with the same `ids` finds them on their way.

        Args:
            ids: int64, any shape; a tensor with a value, or an array.

        Raises:
            elastic_run.exceptions.TableMisused: the ids are no int64.
        """
        self._table.prefetch(ids)

    def rows(self, ids: Any) -> Any:
        """The rows of `ids` (int64, any shape) as they are now: ids.shape + (dim,), float32. No gradient follows."""
        return tf.convert_to_tensor(self._table.rows(ids))


def fit_shard(
    model: Any,
    shard: Shard,
    x: Any,
    y: Any = None,
    *,
    batch_size: int,
    sample_weight: Any = None,
    callbacks: Sequence[Any] = (),
    verbose: int = 0,
) -> Any:
    """Keras's `fit` with the records of one shard, each batch of which is named after its step.

        for shard in data.shards("clicks", 1_000_000, shard_size=4096, commit="ack"):
            elastic.fit_shard(model, shard, ids_of(shard.indices), clicks_of(shard.indices), batch_size=256)
            shard.done()

    `model.fit` itself shuffles, and says of no batch which records it was.

    Args:
        model: a compiled one, with `steps_per_execution=1`.
        shard: of leased data.
        x, y, sample_weight: arrays, or nested lists and dicts of them: a row for each of `shard.indices`, in its order.
        batch_size: records in a step; the last one may have fewer.
        callbacks, verbose: as for `fit`.

    Returns:
        what `fit` does.

    Raises:
        ValueError: an array has another number of rows, or the model makes several steps at a time.
        elastic_run.exceptions.ShardsMisused: the shard is done already.
    """
    for each in tf.nest.flatten((x, y, sample_weight)):
        if each is not None and len(each) != len(shard):
            raise ValueError(f"{len(each)} rows for the {len(shard)} records of shard {shard.key}: give one for each")

    class RecordsNamed(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            check_single_steps(self.model, "the records of each step are named after it")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            shard.progress(min((batch + 1) * batch_size, len(shard)))

    return model.fit(
        x,
        y,
        batch_size=batch_size,
        sample_weight=sample_weight,
        shuffle=False,
        callbacks=[RecordsNamed(), *callbacks],
        verbose=verbose,
    )
