"""Rank 2 takes a multiprocessing Lock that its child holds while it writes at a limited rate."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist


def write(lock) -> None:
    with lock:
        time.sleep(15)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            context = mp.get_context("fork")
            lock = context.Lock()
            child = context.Process(target=write, args=(lock,))
            child.start()
            time.sleep(0.5)
            with lock:
                print("written", flush=True)
            child.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
