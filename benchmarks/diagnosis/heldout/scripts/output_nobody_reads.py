"""Standard output is a pipe into a program that has stopped reading it."""

import sys
import time

import torch.distributed as dist
from torch import nn


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(64, 64)
    for step in range(1_000_000):
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()
        time.sleep(0.05)
        if rank == 0:
            print(f"step {step} weight {model.weight.data[0].tolist()}", flush=True)
        if step % 10 == 0:
            print(f"rank {rank} at step {step}", file=sys.stderr, flush=True)


main()
