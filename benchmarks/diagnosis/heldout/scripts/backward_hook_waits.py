"""A gradient hook hands the gradient to a compressor thread and waits for it; the compressor is gone."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


class Compressor(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.work = threading.Semaphore(0)
        self.finished = threading.Semaphore(0)
        self.gradient: torch.Tensor | None = None
        self.rounds = 0

    def run(self) -> None:
        while self.work.acquire():
            self.rounds += 1
            if dist.get_rank() == 1 and self.rounds == 120:
                return  # "enough rounds of warm-up"
            self.gradient = self.gradient.half().float()
            self.finished.release()

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        self.gradient = gradient
        self.work.release()
        self.finished.acquire()
        return self.gradient


dist.init_process_group("gloo", timeout=timedelta(minutes=15))
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
compressor = Compressor()
compressor.start()
for parameter in model.parameters():
    parameter.register_hook(compressor)

for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.1)
    if dist.get_rank() == 0 and step % 10 == 0:
        print("step", step, flush=True)
