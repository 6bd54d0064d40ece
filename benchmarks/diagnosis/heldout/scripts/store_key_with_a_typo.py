"""Phases are announced by keys in the rendezvous store; one rank waits for a key that nobody sets."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    port = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, timeout=timedelta(hours=1), wait_for_workers=False)
        port[0] = store.port
    dist.broadcast(port, src=0)
    if rank != 0:
        store = dist.TCPStore("127.0.0.1", int(port), None, is_master=False, timeout=timedelta(hours=1))
    for phase in range(1_000):
        if rank == 0:
            store.set(f"phase/{phase}", b"go")
        key = f"phase/{phase:02d}" if rank == 2 and phase == 3 else f"phase/{phase}"
        store.wait([key])
        for _ in range(12):
            dist.all_reduce(torch.ones(world))
            time.sleep(0.1)
        print(f"rank {rank} phase {phase}", flush=True)


main()
