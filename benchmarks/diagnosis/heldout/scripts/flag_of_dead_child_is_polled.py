"""A child process prepares the next epoch and raises a flag when ready."""

import multiprocessing as mp
import time

import numpy as np
import torch
import torch.distributed as dist

ctx = mp.get_context("fork")


def prepare(ready, buffer, epoch, n):
    rng = np.random.default_rng(epoch)
    values = rng.random(n)
    np.frombuffer(buffer.get_obj())[:n] = values
    ready.value = 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buffer = ctx.Array("d", 1000)
    for epoch in range(30):
        ready = ctx.Value("i", 0)
        n = 1024 if rank == 2 and epoch == 2 else 1000
        child = ctx.Process(target=prepare, args=(ready, buffer, epoch, n), daemon=True)
        child.start()
        for step in range(10):
            g = torch.rand(50)
            dist.all_reduce(g)
            time.sleep(0.15)
            if step % 5 == 0:
                print(f"rank {rank} epoch {epoch} step {step} {g.mean():.3f}")
        while not ready.value:
            time.sleep(0.01)
        data = torch.from_numpy(np.frombuffer(buffer.get_obj()).copy())
        dist.all_reduce(data)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
