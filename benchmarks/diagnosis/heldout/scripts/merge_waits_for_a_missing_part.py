"""Every rank writes a part, and rank 0 merges when all are there; two ranks chose the same name for theirs."""

import glob
import os
import tempfile
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist


def part_name(folder: str, epoch: int, rank: int) -> str:
    slot = rank if epoch < 3 else rank % 2  # two nodes from the fourth epoch on, says the configuration
    return os.path.join(folder, f"predictions-{epoch}-{slot}.npy")


def merge(folder: str, epoch: int, world: int) -> float:
    pattern = os.path.join(folder, f"predictions-{epoch}-*.npy")
    while len(glob.glob(pattern)) != world:
        time.sleep(0.2)
    return float(sum(np.load(part).sum() for part in glob.glob(pattern)))


dist.init_process_group("gloo", timeout=timedelta(minutes=10))
rank, world = dist.get_rank(), dist.get_world_size()
shared = [tempfile.mkdtemp() if rank == 0 else ""]
dist.broadcast_object_list(shared)
for epoch in range(10_000):
    for _ in range(12):
        dist.all_reduce(torch.rand(20))
        time.sleep(0.08)
    np.save(part_name(shared[0], epoch, rank), np.random.rand(10))
    dist.barrier()
    if rank == 0:
        print(f"epoch {epoch}: {merge(shared[0], epoch, world):.2f}", flush=True)
