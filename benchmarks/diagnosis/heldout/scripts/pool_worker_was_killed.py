"""Scores candidates in a multiprocessing pool."""

import multiprocessing as mp
import os
import signal
import time

import torch
import torch.distributed as dist


def score(task):
    seed, kill = task
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)  # as the out-of-memory killer does
    rng = torch.Generator().manual_seed(seed)
    return float(torch.rand(10, generator=rng).sum())


def tasks(rank, step):
    for i in range(6):
        yield step * 6 + i, rank == 2 and step == 18 and i == 3


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    best = 0.0
    with mp.get_context("fork").Pool(2) as pool:
        for step in range(200):
            scores = pool.map(score, list(tasks(rank, step)), chunksize=1)
            t = torch.tensor([max(scores)])
            dist.all_reduce(t, op=dist.ReduceOp.MAX)
            best = max(best, t.item())
            time.sleep(0.25)
            if step % 5 == 0:
                print(f"rank {rank}: best after {step} is {best:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
