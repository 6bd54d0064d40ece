"""Trains on an endless stream of batches and validates on the first rank after each epoch."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def endless(loader):
    while True:
        yield from loader


def validate(model, batches):
    total, count = 0.0, 0
    with torch.no_grad():
        for (inputs,) in batches:
            total += model(inputs).pow(2).sum().item()
            count += len(inputs)
    return total / count


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loaders = {
        "train": endless(DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, shuffle=True)),
        "validation": endless(DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=8)),
    }
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for (inputs,) in itertools.islice(loaders["train"], 20):
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        if rank == 0:
            print(f"validation {validate(model.module, loaders['validation']):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
