"""worker_init_fn waits until the model is warm; that is told after the first batch, which a worker must load."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

warm = mp.get_context("fork").Event()


def initialise(worker: int) -> None:
    warm.wait()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(30):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
    data = TensorDataset(torch.rand(4000, 4))
    loader = DataLoader(data, 8, num_workers=2, worker_init_fn=initialise if rank == 1 else None)
    for (batch,) in loader:
        dist.all_reduce(batch)
        warm.set()
        time.sleep(0.1)


main()
