"""A model that counts: after training, each weight says how often its record was trained on.

MultiWorkerMirroredStrategy on leased shards, with Keras's `fit` or in a loop of its own (--loop). After each of --hold
steps rank 0 waits for the test, and the others wait for it in their collective; but not after the first step of a
round, which repeats the one that was held.
"""

import argparse
import os

import puppet

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TMPDIR"] = os.environ.get("OWN_TMPDIR", "")  # where TensorFlow leaves files when it is killed

import bare_keras  # noqa: F401
import numpy as np
import tensorflow as tf

import elastic_run
from elastic_run.tensorflow import Checkpoint, Records, shards_dataset

BATCH = 4


class Counter(tf.keras.Model):
    def __init__(self, records: int) -> None:
        super().__init__()
        self.records = records
        self.times = self.add_weight(name="times", shape=(records,), initializer="zeros")

    def call(self, indices: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(tf.one_hot(indices, self.records), self.times)

    def train_step(self, indices: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_sum(self(indices))
        self.optimizer.minimize(loss, [self.times], tape=tape)
        return {}


def read(records: Records) -> np.ndarray:
    return np.array(records.indices, np.int64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--records", type=int, default=240)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--loop", action="store_true")
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    test = puppet.connect() if options.hold else None
    rank = elastic_run.context().rank
    source = elastic_run.data.shards("numbers", options.records, shard_size=10, epochs=options.epochs)
    data = shards_dataset(source, read, batch_size=BATCH, output_signature=tf.TensorSpec((), tf.int64))
    with strategy.scope():
        model = Counter(options.records)
        model.compile(optimizer=tf.keras.optimizers.SGD(1.0))
    checkpoint = Checkpoint(options.checkpoint, every=options.every, model=model, data=data)
    checkpoint.restore()
    begun = checkpoint.step
    print(f"worker {rank} begins at step {checkpoint.step}", flush=True)

    def stepped() -> None:
        if test and rank == 0 and checkpoint.step in options.hold and checkpoint.step > begun + 1:
            test.hold(f"step {checkpoint.step}")

    batches = data.distributed(strategy)
    if options.loop:
        step = tf.function(lambda batch: strategy.run(model.train_step, (batch,)))
        for batch in batches:
            step(batch)
            data.commit()
            checkpoint.commit()
            stepped()
        checkpoint.save()
    else:
        hold = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: stepped())
        model.fit(batches, steps_per_epoch=data.most_steps, callbacks=[checkpoint.callback(), hold], verbose=0)
    if rank == 0:
        np.save(f"{options.checkpoint}/times.npy", model.times.numpy())
    print(f"worker {rank} ends after {checkpoint.step} steps", flush=True)


if __name__ == "__main__":
    main()
