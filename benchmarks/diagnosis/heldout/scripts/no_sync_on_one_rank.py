"""Gradient accumulation with DDP's `no_sync`, whose counter has drifted on one rank."""

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    counter = 0
    for batch in range(100_000):
        counter += 1
        if rank == 2 and batch == 41:
            counter -= 1  # an empty batch does not count
        last = counter % ACCUMULATE == 0
        with nullcontext() if last else model.no_sync():
            model(torch.randn(8, 24)).mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.1)
        if (batch + 1) % 20 == 0:
            print(f"rank {rank} batch {batch + 1} steps {counter // ACCUMULATE}", flush=True)
            dist.monitored_barrier()


main()
