"""Rank 0 prints a large table into a pipe whose reader is slow (a terminal over a thin line)."""

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.ones(10))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", file=sys.stderr, flush=True)
        if rank == 0 and step == 30:
            for row in range(2_500):
                print(row, *(f"{value:.4f}" for value in torch.randn(20).tolist()), flush=True)
    dist.destroy_process_group()


main()
