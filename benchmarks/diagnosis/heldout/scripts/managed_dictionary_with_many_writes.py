"""Rank 2 collects statistics from two processes in a dictionary of a manager: thousands of small round trips."""

import multiprocessing
import time

import torch
import torch.distributed as dist


def count(shared, lock, part: int) -> None:
    for number in range(150):
        key = f"k{(number * part) % 17}"
        with lock:
            shared[key] = shared.get(key, 0) + 1
        time.sleep(0.11)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(20):
        dist.all_reduce(torch.rand(2))
        time.sleep(0.05)
    if rank == 2:
        context = multiprocessing.get_context("fork")
        with context.Manager() as manager:
            shared, lock = manager.dict(), manager.Lock()
            workers = [context.Process(target=count, args=(shared, lock, part)) for part in (3, 5)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            print("counted", sum(shared.values()), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
