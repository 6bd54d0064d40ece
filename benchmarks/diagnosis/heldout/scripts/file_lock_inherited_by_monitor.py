"""Rank 0 starts a monitor while it holds a file lock; the child inherits it, and closing the file does not free it."""

import fcntl
import multiprocessing
import os
import tempfile
import time

import torch
import torch.distributed as dist


def monitor(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    names = [tempfile.mktemp(prefix="cache-", suffix=".lock") if rank == 0 else None]
    dist.broadcast_object_list(names)
    for step in range(25):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
    if rank == 0:
        lock = open(names[0], "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = multiprocessing.get_context("fork").Process(target=monitor, args=(os.getpid(),), daemon=True)
        child.start()
        print("cache written", flush=True)
        lock.close()
    dist.barrier()
    if rank == 1:
        with open(names[0], "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            print("cache read", flush=True)
    for step in range(10_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)


main()
