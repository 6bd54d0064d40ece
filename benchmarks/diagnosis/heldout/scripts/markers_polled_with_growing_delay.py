"""Ranks meet by marker files, and look for them with a growing delay."""

import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist


def meet(folder, name, rank, world):
    open(os.path.join(folder, f"{name}.{rank}"), "w").close()
    delay = 0.05
    while not all(os.path.exists(os.path.join(folder, f"{name}.{r}")) for r in range(world)):
        time.sleep(delay)
        delay = min(delay * 2, 5)


def shuffle_on_disk(path, seconds):
    rows = np.arange(200_000, dtype="float32")
    np.save(path, rows)
    end = time.time() + seconds
    rounds = 0
    while time.time() < end:
        rows = np.load(path)
        np.random.shuffle(rows)
        np.save(path, rows)
        rounds += 1
    return rounds


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    for epoch in range(3):
        for _ in range(8):
            x = torch.rand(30)
            dist.all_reduce(x)
            time.sleep(0.15)
        busy = rank == epoch
        rounds = shuffle_on_disk(os.path.join(box[0], f"rows{rank}.npy"), 9 if busy and epoch > 0 else 0.5)
        meet(box[0], f"epoch{epoch}", rank, world)
        print(f"rank {rank} epoch {epoch}: {rounds} rounds of shuffling")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
