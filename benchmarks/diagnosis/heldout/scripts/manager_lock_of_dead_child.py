"""A lock of a multiprocessing.Manager was taken by a child that was killed."""

import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist


def append(lock, rows, step: int) -> None:
    with lock:
        rows.append(step)
        if step == 30:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    context = multiprocessing.get_context("fork")
    if rank == 1:
        manager = context.Manager()
        lock, rows = manager.Lock(), manager.list()
    for step in range(1, 100_000):
        gradient = torch.randn(7)
        dist.all_reduce(gradient)
        time.sleep(0.1)
        if rank == 1 and step % 10 == 0:
            with lock:
                count = len(rows)
            child = context.Process(target=append, args=(lock, rows, step))
            child.start()
            child.join()
            print(f"step {step}: {count} rows", flush=True)


main()
