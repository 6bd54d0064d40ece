"""A pool with one task per process; each new process first sleeps until its licence is free."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist


def tokenize(number: int) -> int:
    time.sleep(3)
    return number


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            with mp.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
                print(pool.map(tokenize, range(8), chunksize=1), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
