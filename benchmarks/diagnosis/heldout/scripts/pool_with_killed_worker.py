"""`Pool.map` whose worker was killed (as the kernel does when memory is short): the result never comes."""

import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist


def tokenise(document: int) -> int:
    if document == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return document * 7


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(1_000):
        for _ in range(12):
            lengths = torch.tensor([float(epoch)])
            dist.all_reduce(lengths)
            time.sleep(0.1)
        if rank == 1:
            print(f"epoch {epoch}", flush=True)
        if rank == 0 and epoch == 2:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(sum(pool.map(tokenise, range(16), chunksize=1)), flush=True)


if __name__ == "__main__":
    main()
