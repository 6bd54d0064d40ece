"""Ranks wait for a prepared file; one of them looks for it under a name with its own rank."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def prepare(folder: str, epoch: int) -> None:
    with open(os.path.join(folder, f"epoch{epoch}.idx"), "w") as file:
        file.write("0 1 2 3")


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.5)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp(prefix="index-") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    for epoch in range(10_000):
        if rank == 0:
            prepare(folder[0], epoch)
        name = f"epoch{epoch}.idx" if rank != 1 or epoch < 3 else f"epoch{epoch}.rank{rank}.idx"
        wait_for(os.path.join(folder[0], name))
        for _ in range(10):
            dist.all_reduce(torch.zeros(5))
            time.sleep(0.1)
        print(f"rank {rank} finished epoch {epoch}", flush=True)
