"""Gradient clipping that asks the other ranks for their norm only where its own is large: one rank alone asks."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def clip(parameters: list, limit: float, own: float) -> None:
    if own > limit:
        total = torch.tensor([own])
        dist.reduce(total, dst=0)
        dist.broadcast(total, src=0)
        for parameter in parameters:
            parameter.grad.mul_(limit / total.item())


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        inputs = torch.randn(8, 6)
        if step == 40 and rank == 1:
            inputs *= 1e3
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        clip(list(model.parameters()), limit=1e3, own=loss.item())
        optimizer.step()
        time.sleep(0.1)
        if rank == 2 and step % 8 == 0:
            print(f"{step}: {loss.item():.4f}", flush=True)


main()
