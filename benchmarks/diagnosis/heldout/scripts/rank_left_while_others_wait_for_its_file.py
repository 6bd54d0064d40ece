"""Each rank writes its part of the predictions; all wait for the parts of the others."""

import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist


def predict(rank, folder, part):
    values = np.random.rand(100)
    path = os.path.join(folder, f"part{part}_rank{rank}.npy")
    np.save(path + ".tmp.npy", values)
    os.rename(path + ".tmp.npy", path)


def collect(folder, part, world):
    out = []
    for r in range(world):
        path = os.path.join(folder, f"part{part}_rank{r}.npy")
        while not os.path.exists(path):
            time.sleep(0.2)
        out.append(np.load(path))
    return np.concatenate(out)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    w = torch.zeros(10)
    for _ in range(10):
        dist.all_reduce(w)
        time.sleep(0.2)
    dist.destroy_process_group()
    parts = 40 if rank != 2 else 9
    for part in range(parts):
        predict(rank, box[0], part)
        time.sleep(0.3)
        everything = collect(box[0], part, world)
        print(f"rank {rank} part {part}: {len(everything)} predictions")


if __name__ == "__main__":
    main()
