"""Ranks wait in the rendezvous store for a key that rank 1 sets when it has built the index."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def build_index(seconds: float) -> int:
    end, index = time.monotonic() + seconds, {}
    while time.monotonic() < end:
        word = format(len(index) * 2_654_435_761 % (1 << 32), "x")
        index[word] = len(index)
        if len(index) > 200_000:
            index.clear()
    return len(index)


def main() -> None:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    port = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
        port[0] = store.port
    dist.broadcast(port, src=0)
    if rank != 0:
        store = dist.TCPStore("127.0.0.1", int(port), None, is_master=False)
    for epoch in range(4):
        if rank == 1:
            size = build_index(14 if epoch == 2 else 0.1)
            store.set(f"index/{epoch}", str(size))
        store.wait([f"index/{epoch}"], timedelta(minutes=5))
        for _ in range(15):
            dist.all_reduce(torch.ones(4))
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
