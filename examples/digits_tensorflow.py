"""TensorFlow's MultiWorkerMirroredStrategy on leased shards: each picture once an epoch, whichever workers are lost.

    elastic-run --framework=tensorflow --standalone --nproc-per-node=2 examples/digits_tensorflow.py --checkpoint=/tmp/d

Model and position in the data are saved together. With --fail a worker kills itself once. `fit` under this strategy
needs legacy Keras, the package tf-keras.
"""

import argparse
import os
import signal
from collections.abc import Iterator

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import elastic_run
from elastic_run.tensorflow import Checkpoint, Records, shards_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--checkpoint", default="digits")
    parser.add_argument("--fail", action="store_true", help="rank 1 kills itself once, after 30 steps")
    options = parser.parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    here = elastic_run.context()

    digits = load_digits()
    pixels, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int64)
    test = np.arange(len(labels)) % 5 == 0
    train_pixels, train_labels = pixels[~test], labels[~test]

    def read(records: Records) -> Iterator[tuple[np.ndarray, np.int64]]:
        for row in records.indices:
            yield train_pixels[row], train_labels[row]

    source = elastic_run.data.shards("digits", len(train_labels), shard_size=64, epochs=options.epochs)
    signature = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int64))
    data = shards_dataset(source, read, batch_size=32, output_signature=signature)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(64, "relu", input_shape=(64,)), tf.keras.layers.Dense(10)])
        model.compile(tf.keras.optimizers.SGD(0.2), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    checkpoint = Checkpoint(options.checkpoint, every=10, model=model, data=data)
    checkpoint.restore()
    if here.rank == 0:
        print(f"begins at step {checkpoint.step} with {here.world_size} workers", flush=True)

    def stepped(batch: int, logs: object) -> None:
        if options.fail and here.rank == 1 and here.restart_count == 0 and checkpoint.step >= 30:
            os.kill(os.getpid(), signal.SIGKILL)

    fault = tf.keras.callbacks.LambdaCallback(on_train_batch_end=stepped)
    batches = data.distributed(strategy)
    model.fit(batches, steps_per_epoch=data.most_steps, callbacks=[checkpoint.callback(), fault], verbose=0)
    right = float(np.mean(model(pixels[test]).numpy().argmax(axis=1) == labels[test]))
    if here.rank == 0:
        print(f"accuracy on {int(test.sum())} unseen digits: {100 * right:.1f} %", flush=True)


if __name__ == "__main__":
    main()
