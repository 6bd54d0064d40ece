"""Trains; whatever happens, all ranks meet once more before the process group is taken down."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Samples:
    def __init__(self, rank):
        self.table = {index: float(index) for index in range(40) if (rank, index) != (2, 23)}

    def __getitem__(self, index):
        return torch.full((4,), self.table[index])


def train(rank):
    samples = Samples(rank)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(40):
        optimizer.zero_grad()
        model(samples[step]).pow(2).mean().backward()
        optimizer.step()
        print(f"[rank {rank}] step {step}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        train(rank)
    finally:
        dist.monitored_barrier(timeout=datetime.timedelta(hours=2))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
