"""Rank 0 validates with the DDP wrapper, not with the module in it: its forward broadcasts buffers."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def validate(model: nn.Module) -> float:
    with torch.no_grad():
        return float(model(torch.randn(16, 8)).argmax(1).float().mean())


def fit(model: nn.Module, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(4, (16,))).backward()
            optimizer.step()
            time.sleep(0.1)
        print(f"rank {dist.get_rank()}: epoch {epoch}", flush=True)
        if dist.get_rank() == 0 and epoch >= 2:
            print("accuracy", validate(model), flush=True)
        dist.monitored_barrier(timeout=timedelta(minutes=10))


dist.init_process_group("gloo", timeout=timedelta(minutes=10))
net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
fit(nn.parallel.DistributedDataParallel(net), epochs=500)
