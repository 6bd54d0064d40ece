"""The same regression with ParameterServerStrategy: the weights are on a parameter server, the chief hands out steps.

The chief writes a checkpoint after each step, from which it restores; at each of `--hold` it waits for the test.
"""

import argparse
import os
from pathlib import Path

import bare_keras  # noqa: F401
import numpy as np
import puppet
import tensorflow as tf

BATCH, RATE = 12, 0.1
WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()

    test = puppet.connect()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    step, values = 0, np.zeros_like(WEIGHTS)
    if options.checkpoint.exists():
        with np.load(options.checkpoint) as saved:
            step, values = int(saved["step"]), saved["weights"]
    print(f"the chief begins at step {step}", flush=True)
    with strategy.scope():
        weights = tf.Variable(values)
    assert "/job:ps" in weights.device

    @tf.function(autograph=False)
    def train(inputs: tf.Tensor, targets: tf.Tensor) -> None:
        error = tf.linalg.matvec(inputs, weights) - targets
        weights.assign_sub(RATE * 2 / BATCH * tf.linalg.matvec(inputs, error, transpose_a=True))

    while step < options.steps:
        inputs = np.random.default_rng(step).standard_normal((BATCH, len(WEIGHTS)), np.float32)
        coordinator.schedule(train, (tf.constant(inputs), tf.constant(inputs @ WEIGHTS)))
        coordinator.join()
        step += 1
        new = options.checkpoint.with_suffix(f".{os.getpid()}.part")
        with new.open("wb") as file:
            np.savez(file, step=step, weights=weights.numpy())
        new.rename(options.checkpoint)
        if step in options.hold:
            test.hold(f"step {step}")
    print(f"the chief ends after {step} steps", flush=True)


if __name__ == "__main__":
    main()
