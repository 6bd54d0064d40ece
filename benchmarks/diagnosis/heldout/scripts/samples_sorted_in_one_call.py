"""A rank sorts its samples by length in one call for many seconds, without letting other threads run."""

import random

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        dice = random.Random(1)
        lengths = [dice.random() for _ in range(12_000_000)]
        lengths.sort()
    dist.barrier()
    dist.destroy_process_group()


main()
