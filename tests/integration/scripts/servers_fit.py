"""Trains a table that counts ids by Keras's `fit`, a shard at a time; rank 0 prints what it has counted.

With --dies-before=N the first worker to begin its N-th batch of the first round kills itself.
"""

import argparse
import contextlib
import os
import signal
import time

import bare_keras  # noqa: F401
import numpy as np
import tensorflow as tf

from elastic_run import data, servers
from elastic_run.tensorflow import Embedding, fit_shard

RECORDS = 2000

parser = argparse.ArgumentParser()
parser.add_argument("--dies-before", type=int, default=0)
options = parser.parse_args()
batches = 0


def die() -> None:
    global batches
    batches += 1
    if (batches, os.environ["ELASTIC_RUN_ROUND"]) == (options.dies_before, "1"):
        with contextlib.suppress(FileExistsError):
            os.close(os.open("died", os.O_CREAT | os.O_EXCL))
            print(f"dies before batch {batches}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


rows = Embedding("counts", 1, servers.SGD(1.0), servers.Zeros())
model = tf.keras.Sequential([tf.keras.Input((), dtype="int64"), rows])
model.compile(optimizer="adam", loss=lambda _, found: -tf.reduce_sum(found))
dying = tf.keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: die())
for shard in data.shards("d", RECORDS, shard_size=100, epochs=2, commit="ack"):
    fit_shard(model, shard, np.array(shard.indices), np.zeros(len(shard)), batch_size=32, callbacks=[dying])
    shard.done()
if os.environ["RANK"] == "0":
    until = time.monotonic() + 60
    while (counted := rows.rows(np.arange(RECORDS)).numpy()).sum() < 2 * RECORDS and time.monotonic() < until:
        time.sleep(0.1)  # until the others are done as well
    print("counted", np.unique(counted).tolist(), int(counted.sum()), flush=True)
