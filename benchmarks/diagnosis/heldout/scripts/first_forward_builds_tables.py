"""The first forward pass builds look-up tables in Python on every rank, one layer after another."""

import functools
import math
import time

import torch
import torch.distributed as dist
from torch import nn


@functools.cache
def table(layer: int, seconds: float) -> tuple:
    values, end = [0.0] * 64, time.monotonic() + seconds
    while time.monotonic() < end:
        values = [math.cos(layer * place / 64) for place in range(64)]
        time.sleep(0.001)
    return tuple(values)


class Rotary(nn.Module):
    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.mix = nn.Linear(64, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.mix(inputs * torch.tensor(table(self.layer, 3.0)))


dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(*(Rotary(layer) for layer in range(4))))
for step in range(40):
    model(torch.rand(2, 64)).sum().backward()
    time.sleep(0.1)
    if step % 10 == 0:
        print(f"rank {dist.get_rank()} step {step}", flush=True)
dist.destroy_process_group()
