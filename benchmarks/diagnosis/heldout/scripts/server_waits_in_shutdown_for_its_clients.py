"""The first rank serves parameters: it is in the shut-down of its remote calls while the others train by them."""

import os
import time

import torch
from torch.distributed import rpc

weights = torch.zeros(16)


def push(gradient: torch.Tensor) -> torch.Tensor:
    return weights.add_(gradient)


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
    if rank:
        for step in range(4):
            until = time.monotonic() + 5
            while time.monotonic() < until:
                torch.rand(64, 64).exp().sum()
                time.sleep(0.002)
            rpc.rpc_sync("worker0", push, (torch.rand(16),))
    rpc.shutdown(timeout=0)


main()
