"""Data parallel training in JAX: each process has a part of every batch, and any process may be lost.

    elastic-run --framework=jax --standalone --nproc-per-node=2 examples/digits_jax.py --checkpoint /tmp/digits.npz

`elastic_run.jax.initialize` is `jax.distributed.initialize` without arguments; the coordination service runs beside the
workers, so process 0 may be lost like any other. With --fail a worker kills itself once.
"""

import argparse
import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

import elastic_run

BATCH = 240


def loss(weights: jax.Array, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(pixels @ weights)
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


@jax.jit
def train(weights: jax.Array, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    return weights - 0.5 * jax.grad(loss)(weights, pixels, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.npz"))
    parser.add_argument("--fail", action="store_true", help="process 1 kills itself once, at half of the steps")
    options = parser.parse_args()
    elastic_run.jax.initialize()
    rank, world = jax.process_index(), jax.process_count()
    restarts = elastic_run.context().restart_count

    digits = load_digits()
    pixels, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int32)
    test = np.arange(len(labels)) % 5 == 0
    train_pixels, train_labels = pixels[~test], labels[~test]

    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    shared, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    step, weights = 0, np.zeros((64, 10), np.float32)
    if options.checkpoint.exists():
        with np.load(options.checkpoint) as saved:
            step, weights = int(saved["step"]), saved["weights"]
    if rank == 0:
        print(f"begins at step {step} with {world} processes", flush=True)

    state = jax.make_array_from_process_local_data(everywhere, weights)
    while step < options.steps:
        # One global batch for each step, the same at any number of processes.
        batch = np.random.default_rng(step).choice(len(train_labels), BATCH, replace=False)
        mine = batch[rank * BATCH // world : (rank + 1) * BATCH // world]
        state = train(
            state,
            jax.make_array_from_process_local_data(shared, train_pixels[mine]),
            jax.make_array_from_process_local_data(shared, train_labels[mine]),
        )
        step += 1
        if options.fail and rank == 1 and step == options.steps // 2 and restarts == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 10 == 0:
            weights = np.asarray(state.addressable_data(0))
            if rank == 0:
                part = options.checkpoint.with_suffix(f".{os.getpid()}.part")
                with part.open("wb") as file:
                    np.savez(file, step=step, weights=weights)
                part.rename(options.checkpoint)

    if rank == 0:
        right = float(np.mean((pixels[test] @ np.asarray(state.addressable_data(0))).argmax(axis=1) == labels[test]))
        print(f"accuracy on {int(test.sum())} unseen digits: {100 * right:.1f} %", flush=True)


if __name__ == "__main__":
    main()
