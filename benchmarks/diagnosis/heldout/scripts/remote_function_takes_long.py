"""Rank 1 calls a function of rank 2 by torch's RPC, which warms a cache; rank 0 is at a barrier."""

import os
import time

import torch
import torch.distributed as dist
from torch.distributed import rpc


def warm() -> int:
    time.sleep(15)
    return 3


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            print(rpc.rpc_sync("worker2", warm), flush=True)
    rpc.shutdown()
    dist.destroy_process_group()


main()
