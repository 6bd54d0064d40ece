"""A straggler: rank 2's steps take five seconds for a while, as where another tenant takes its cores."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def forward_backward(model: nn.Module, seconds: float) -> None:
    end = time.monotonic() + seconds
    x = torch.randn(16, 48)
    while True:
        loss = model(x).square().mean()
        if time.monotonic() > end:
            break
    loss.backward()


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(48, 48))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(55):
    slow = rank == 2 and 30 <= step < 33
    optimizer.zero_grad()
    forward_backward(model, 5.0 if slow else 0.02)
    optimizer.step()
    time.sleep(0.08)
    if step % 10 == 0:
        print(f"rank {rank} step {step}", flush=True)
dist.destroy_process_group()
