"""Linear regression in JAX, data parallel, whose result does not depend on the number of processes.

Each step takes one global batch, which the processes share. Process 0 writes a checkpoint after each step; at each of
`--hold` it waits for the test, and the others wait for it in their collective. `--own` joins by `elastic_run.jax`.
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import puppet
from jax.sharding import NamedSharding, PartitionSpec

BATCH, RATE = 12, 0.1
WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(step).standard_normal((BATCH, len(WEIGHTS)), np.float32)
    return inputs, inputs @ WEIGHTS


@jax.jit
def train(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    return weights - RATE * jax.grad(lambda w: jnp.mean((inputs @ w - targets) ** 2))(weights)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--fail", type=int, help="the process that raises, once, before the last step")
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()

    if options.own:
        import elastic_run

        elastic_run.jax.initialize()
    else:
        jax.distributed.initialize()
    test = puppet.connect()
    rank, processes = jax.process_index(), jax.process_count()
    assert (rank, processes) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    shared, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

    step, weights = 0, np.zeros_like(WEIGHTS)
    if options.checkpoint.exists():
        with np.load(options.checkpoint) as saved:
            step, weights = int(saved["step"]), saved["weights"]
    print(f"process {rank} of {processes} begins at step {step}", flush=True)
    state = jax.make_array_from_process_local_data(everywhere, weights)
    part = slice(rank * BATCH // processes, (rank + 1) * BATCH // processes)
    while step < options.steps:
        if step + 1 == options.steps and rank == options.fail and os.environ["ELASTIC_RUN_RESTART_COUNT"] == "0":
            raise ValueError("one process failed")
        inputs, targets = (jax.make_array_from_process_local_data(shared, each[part]) for each in batch(step))
        state = train(state, inputs, targets)
        weights = np.asarray(state.addressable_data(0))
        step += 1
        if rank == 0:
            new = options.checkpoint.with_suffix(f".{os.getpid()}.part")
            with new.open("wb") as file:
                np.savez(file, step=step, weights=weights)
            new.rename(options.checkpoint)
            if step in options.hold:
                test.hold(f"step {step}")
    print(f"process {rank} ends after {step} steps", flush=True)


if __name__ == "__main__":
    main()
