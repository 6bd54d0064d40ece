"""Linear regression with MultiWorkerMirroredStrategy, whose result does not depend on the number of workers.

Each step takes one global batch, which the workers share. The chief writes a checkpoint after each step; at each of
`--hold` it waits for the test, and the others wait for it in their collective.
"""

import argparse
import json
import os
from pathlib import Path

import bare_keras  # noqa: F401
import numpy as np
import puppet
import tensorflow as tf

BATCH, RATE = 12, 0.1
WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(step).standard_normal((BATCH, len(WEIGHTS)), np.float32)
    return inputs, inputs @ WEIGHTS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()

    config = json.loads(os.environ["TF_CONFIG"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    test = puppet.connect()
    rank, workers = config["task"]["index"], len(config["cluster"]["worker"])
    assert (rank, workers) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert strategy.num_replicas_in_sync == workers
    part = slice(rank * BATCH // workers, (rank + 1) * BATCH // workers)

    @tf.function(autograph=False)
    def gradient(weights: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        def mine(weights: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            error = tf.linalg.matvec(inputs, weights) - targets
            return 2 / BATCH * tf.linalg.matvec(inputs, error, transpose_a=True)

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(mine, (weights, inputs, targets)), axis=None)

    step, weights = 0, np.zeros_like(WEIGHTS)
    if options.checkpoint.exists():
        with np.load(options.checkpoint) as saved:
            step, weights = int(saved["step"]), saved["weights"]
    print(f"worker {rank} of {workers} begins at step {step}", flush=True)
    while step < options.steps:
        inputs, targets = batch(step)
        weights = weights - RATE * gradient(*map(tf.constant, (weights, inputs[part], targets[part]))).numpy()
        step += 1
        if rank == 0:
            new = options.checkpoint.with_suffix(f".{os.getpid()}.part")
            with new.open("wb") as file:
                np.savez(file, step=step, weights=weights)
            new.rename(options.checkpoint)
            if step in options.hold:
                test.hold(f"step {step}")
    print(f"worker {rank} ends after {step} steps", flush=True)


if __name__ == "__main__":
    main()
