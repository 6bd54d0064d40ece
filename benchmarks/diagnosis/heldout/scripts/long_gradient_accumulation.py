"""Many micro-batches between two synchronisations: every rank computes, and none communicates, for twelve seconds."""

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def step(model: DDP, optimizer: torch.optim.Optimizer, micro_batches: int) -> None:
    for number in range(micro_batches):
        with nullcontext() if number == micro_batches - 1 else model.no_sync():
            x = torch.randn(128, 512)
            time.sleep(0.03)  # the next micro-batch is read
            (model(x).square().mean() / micro_batches).backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, micro_batches in enumerate([2] * 25 + [350] + [2] * 15):
        step(model, optimizer, micro_batches)
        if number % 10 == 0 or micro_batches > 100:
            print(f"rank {dist.get_rank()}: step {number} of {micro_batches} micro-batches", flush=True)
    dist.destroy_process_group()


main()
