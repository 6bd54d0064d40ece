"""Rank 1 compresses its shard in C, without the interpreter lock, before all go on."""

import time
import zlib

import torch
import torch.distributed as dist


def archive(seconds: float) -> int:
    data = torch.randint(0, 50, (4_000_000,), dtype=torch.uint8).numpy().tobytes()
    end, size = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        size = len(zlib.compress(data, level=9))
    return size


class Run:
    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.step = dist.get_rank(), 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            dist.all_reduce(torch.randn(256))
            time.sleep(0.1)
            if self.step % 10 == 0:
                print(f"rank {self.rank} step {self.step}", flush=True)


run = Run()
run.train(30)
if run.rank == 1:
    print("archived", archive(14), flush=True)
run.train(25)
dist.destroy_process_group()
