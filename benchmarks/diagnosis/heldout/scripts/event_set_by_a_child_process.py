"""Rank 0 waits for a multiprocessing Event, which its child sets when the environment is up."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist


def environment(up) -> None:
    time.sleep(15)
    up.set()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            context = mp.get_context("fork")
            up = context.Event()
            context.Process(target=environment, args=(up,)).start()
            up.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
