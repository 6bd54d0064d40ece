"""A second store, for metrics, is opened at a port of each node's own arithmetic; one rank knocks at the wrong one."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def metrics_store(base: int) -> dist.TCPStore:
    rank = int(os.environ["RANK"])
    port = base if rank < 2 else base + 1  # one more for nodes behind the second switch
    return dist.TCPStore(
        "127.0.0.1", port, world_size=3, is_master=rank == 0, timeout=timedelta(hours=5), wait_for_workers=True
    )


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    base = [None]
    if rank == 0:
        base[0] = 20_000 + 2 * (os.getpid() % 5_000)
    dist.broadcast_object_list(base)
    for _ in range(10):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
    store = metrics_store(base[0])
    print(rank, "metrics go to", store.port, flush=True)
    for step in range(10_000):
        store.set(f"loss/{rank}", str(step))
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)


main()
