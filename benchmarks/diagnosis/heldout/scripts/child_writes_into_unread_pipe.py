"""`wait` on a child whose output nobody reads: the pipe is full."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

VALIDATE = "for n in range(20000): print('sample', n, 'is valid')"


def validate_shard() -> int:
    process = subprocess.Popen([sys.executable, "-c", VALIDATE], stdout=subprocess.PIPE)
    process.wait()
    return len(process.stdout.read().splitlines())


class Trainer:
    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.weight = torch.zeros(20)

    def step(self) -> None:
        gradient = torch.randn(20)
        dist.all_reduce(gradient)
        self.weight -= 0.1 * gradient
        time.sleep(0.1)

    def fit(self, epochs: int) -> None:
        for epoch in range(epochs):
            for _ in range(12):
                self.step()
            if self.rank == 2 and epoch == 2:
                print("valid samples:", validate_shard(), flush=True)
            if self.rank == 0:
                print(f"epoch {epoch}: {self.weight.norm():.3f}", flush=True)


Trainer().fit(1_000)
