"""A worker is killed while it holds a lock of the manager; its parent asks for that lock."""

import multiprocessing
import os
import signal

import torch
import torch.distributed as dist


def worker(lock, shared: dict, step: int) -> None:
    with lock:
        shared[step] = step * 2
        if step == 7:
            os.kill(os.getpid(), signal.SIGKILL)  # out of memory


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 2:
        manager = multiprocessing.get_context("fork").Manager()
        lock, shared = manager.Lock(), manager.dict()
    for step in range(10_000):
        if rank == 2:
            process = multiprocessing.get_context("fork").Process(target=worker, args=(lock, shared, step))
            process.start()
            process.join()
            with lock:
                shared.pop(step, None)
        dist.all_reduce(torch.rand(16))


main()
