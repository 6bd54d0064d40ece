"""A plain script of MultiWorkerMirroredStrategy: small steps, and a checkpoint every ten.

Called with a journal to append to and a folder for checkpoints; see `journal.py` for its lines. Nothing in it knows who
set its TF_CONFIG.
"""

# tensorflow is annotated only in part:
# pyright: basic

import time

FIRST_LINE = time.monotonic_ns()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

IMPORTED = time.monotonic_ns()

STEP_SECONDS = 0.02
STEPS = 30_000  # ten minutes: an end, should nobody kill it
SAVE_EVERY = 10


def main(journal: str, checkpoint: Path) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    config = json.loads(os.environ["TF_CONFIG"])
    rank, world = config["task"]["index"], len(config["cluster"]["worker"])
    joined = time.monotonic_ns()

    @tf.function(autograph=False)
    def total(values: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda each: each, (values,)), axis=None)

    weights, step = np.zeros((64, 10), np.float32), 0
    built = time.monotonic_ns()
    if checkpoint.exists():
        with np.load(checkpoint) as saved:
            weights, step = saved["weights"], int(saved["step"])
    restored = time.monotonic_ns()

    named = total(tf.constant(time.monotonic_ns() if rank == 0 else 0, tf.int64))
    generation = int(named.numpy())
    out = os.open(journal, os.O_WRONLY | os.O_APPEND)  # one write per line: lines of several ranks do not mix
    way = f"{FIRST_LINE} {IMPORTED} {joined} {built} {restored}"
    os.write(out, f"born {generation} {rank} {world} {os.getpid()} {way}\n".encode())
    while step < STEPS:
        began = time.monotonic()
        inputs = np.random.default_rng(step).standard_normal((32, 64), np.float32)[rank::world]
        weights -= 0.01 * total(tf.constant(inputs.T @ np.tanh(inputs @ weights + 1))).numpy()
        step += 1
        os.write(out, f"step {generation} {rank} {world} {step} {time.monotonic_ns()}\n".encode())
        if step % SAVE_EVERY == 0 and rank == 0:
            part = checkpoint.with_suffix(f".{os.getpid()}.part")
            with part.open("wb") as file:
                np.savez(file, weights=weights, step=step)
            part.rename(checkpoint)
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))  # as if there were more to compute


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
