"""A helper puts its result into a queue and leaves by os._exit, before the queue's own thread has written it."""

import multiprocessing
import os
import time

import torch
import torch.distributed as dist


def score(results, seed: int, big: bool) -> None:
    torch.manual_seed(seed)
    values = torch.rand(5).tolist()
    results.put(values * (2_000 if big else 1))
    if not big:
        time.sleep(0.3)
    os._exit(0)  # do not run the parent's exit handlers


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    context = multiprocessing.get_context("fork")
    for epoch in range(1000):
        for _ in range(10):
            dist.all_reduce(torch.rand(10))
            time.sleep(0.05)
        results = context.Queue()
        helper = context.Process(target=score, args=(results, epoch, rank == 1 and epoch == 4))
        helper.start()
        values = results.get()
        helper.join()
        print(rank, epoch, len(values), flush=True)


main()
