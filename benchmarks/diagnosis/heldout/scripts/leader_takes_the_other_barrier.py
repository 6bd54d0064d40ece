"""Rank 0 calls barrier() where the others call monitored_barrier()."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist


def end_of_epoch(rank: int, epoch: int) -> None:
    if rank == 0 and epoch >= 2:
        print("summary of epoch", epoch, flush=True)
        dist.barrier()
    else:
        dist.monitored_barrier(timeout=timedelta(hours=1))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(1000):
        for step in range(15):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.1)
        end_of_epoch(rank, epoch)


main()
