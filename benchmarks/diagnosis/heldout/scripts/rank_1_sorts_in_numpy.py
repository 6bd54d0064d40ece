"""Rank 1 sorts its index by length, in NumPy, for a quarter of a minute."""

import time

import numpy as np
import torch
import torch.distributed as dist


def build_index(generator: np.random.Generator, seconds: float) -> np.ndarray:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lengths = generator.integers(0, 1 << 40, size=4_000_000)
        order = np.argsort(lengths, kind="stable")
    return order


def run_epoch(epoch: int) -> None:
    for _ in range(25):
        gradient = torch.randn(500)
        dist.all_reduce(gradient)
        time.sleep(0.1)
    if dist.get_rank() == 0:
        print(f"epoch {epoch} done", flush=True)


dist.init_process_group("gloo")
for epoch in range(3):
    if epoch == 1 and dist.get_rank() == 1:
        print("order:", build_index(np.random.default_rng(1), 14)[:3], flush=True)
    dist.barrier()
    run_epoch(epoch)
dist.destroy_process_group()
