"""Rank 1 calls a function of rank 2 under a lock; that function asks rank 1 for a value under the same lock."""

import threading
import time

import torch
import torch.distributed as dist
from torch.distributed import rpc

lock = threading.Lock()
state = {"version": 0}


def version() -> int:
    with lock:
        return state["version"]


def update_if_newer() -> int:
    return rpc.rpc_sync("worker1", version) + 1


def main() -> None:
    import os

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    rpc.init_rpc(
        f"worker{rank}",
        rank=rank,
        world_size=world,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=3600),
    )
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 1 and step == 20:
            with lock:
                state["version"] = rpc.rpc_sync("worker2", update_if_newer)


main()
