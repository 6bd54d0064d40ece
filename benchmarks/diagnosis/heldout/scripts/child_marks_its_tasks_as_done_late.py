"""Rank 1 joins a multiprocessing JoinableQueue, whose child takes seconds for each task."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist


def convert(tasks) -> None:
    while tasks.get() is not None:
        time.sleep(3.5)
        tasks.task_done()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            context = mp.get_context("fork")
            tasks = context.JoinableQueue()
            context.Process(target=convert, args=(tasks,), daemon=True).start()
            for number in range(1, 5):
                tasks.put(number)
            tasks.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
