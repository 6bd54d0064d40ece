"""Rank 0 waits for the next snapshot of a timer before it goes into the second phase; the timer rings late."""

import copy
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Snapshots:
    def __init__(self, model: nn.Module, every: float) -> None:
        self.model, self.every = model, every
        self.last: dict = {}
        self.taken = threading.Event()
        self.timer = threading.Timer(every, self.ring)
        self.timer.start()

    def ring(self) -> None:
        self.last = copy.deepcopy(self.model.state_dict())
        self.taken.set()

    def wait(self) -> dict:
        self.taken.clear()
        self.taken.wait()
        return self.last


dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(5, 5)
snapshots = Snapshots(model, every=17.0) if rank == 0 else None
for step in range(55):
    model(torch.rand(3, 5)).sum().backward()
    dist.all_reduce(model.weight.grad)
    model.zero_grad()
    time.sleep(0.1)
    if snapshots and step == 36:
        print("snapshot of", list(snapshots.wait()), flush=True)
    if step % 9 == 0:
        print(rank, step, flush=True)
dist.destroy_process_group()
