"""A synchronous job of which one rank has so many times the others' work in each step: straggler.py FACTOR SECONDS."""

import sys
import time

import torch
import torch.distributed as dist

WORK = 400
"""Products of two small matrices, in each step of the others: some 20 ms."""


def main() -> None:
    """Trains until the time is over."""
    factor, seconds = float(sys.argv[1]), float(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, until = dist.get_rank(), time.monotonic() + seconds
    weights, gradient = torch.rand(128, 128), torch.zeros(100_000)
    goes_on = torch.ones(1)
    while goes_on.item():
        for _ in range(round(WORK * (factor if rank == 1 else 1))):
            weights = (weights @ weights).clamp(0, 1)
        dist.all_reduce(gradient)
        goes_on.fill_(float(time.monotonic() < until))
        dist.broadcast(goes_on, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
