"""Computes statistics of each epoch in a child process."""

import multiprocessing as mp
import time

import numpy as np
import torch
import torch.distributed as dist


def histogram(values, bins, out):
    counts, edges = np.histogram(values, bins=bins)
    out.put((counts, edges))


def statistics(values, bins):
    ctx = mp.get_context("fork")
    out = ctx.Queue()
    p = ctx.Process(target=histogram, args=(values, bins, out))
    p.start()
    p.join()
    return out.get()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    bins = 64
    for epoch in range(50):
        seen = []
        for _ in range(6):
            x = torch.randn(500)
            dist.all_reduce(x)
            seen.append(x.numpy())
            time.sleep(0.2)
        if rank == 0 and epoch == 3:
            bins = 20_000
        counts, _ = statistics(np.concatenate(seen), bins)
        print(f"rank {rank} epoch {epoch}: largest bin {counts.max()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
