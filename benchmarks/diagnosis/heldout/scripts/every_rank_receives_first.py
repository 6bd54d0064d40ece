"""A ring in which every rank receives from its left before it sends to its right."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist


def rotate(tensor: torch.Tensor, rank: int, world: int, overlap: bool) -> torch.Tensor:
    received = torch.empty_like(tensor)
    if overlap:
        request = dist.isend(tensor, (rank + 1) % world)
        dist.recv(received, (rank - 1) % world)
        request.wait()
    else:
        dist.recv(received, (rank - 1) % world)
        dist.send(tensor, (rank + 1) % world)
    return received


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    block = torch.full((1000,), float(rank))
    for step in range(100_000):
        block = rotate(block, rank, world, overlap=step < 40)
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} block {block[0].item():.0f}", flush=True)


main()
