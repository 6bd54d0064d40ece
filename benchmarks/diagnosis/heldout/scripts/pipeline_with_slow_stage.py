"""A pipeline of three stages; the first is slow for some micro-batches, and the other two idle in `recv`."""

import time

import torch
import torch.distributed as dist


def work(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.randn(32, 32) @ torch.randn(32, 32)


class Stage:
    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.last = rank, world - 1

    def forward(self, number: int) -> None:
        x = torch.full((10,), float(number))
        if self.rank > 0:
            dist.recv(x, src=self.rank - 1)
        work(7 if self.rank == 0 and number in (20, 21) else 0.1)
        if self.rank < self.last:
            dist.send(x + 1, dst=self.rank + 1)
        elif number % 5 == 0:
            print(f"micro-batch {number}: {x[0].item():.0f}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    for number in range(45):
        stage.forward(number)
    dist.barrier()
    dist.destroy_process_group()


main()
