"""Two ranks lock two index files in opposite order; the kernel reports the deadlock, and the retry keeps the first lock."""

import errno
import fcntl
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist


def lock(file) -> None:
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)
            return
        except OSError as error:
            if error.errno != errno.EDEADLK:
                raise
            time.sleep(0.3)


def move(folder: str, source: str, target: str) -> None:
    with open(os.path.join(folder, source), "a") as a, open(os.path.join(folder, target), "a") as b:
        lock(a)
        time.sleep(0.5)
        lock(b)
        b.write("moved\n")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp(prefix="index-") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    for step in range(100):
        dist.all_reduce(torch.rand(10))
        time.sleep(0.1)
        if step == 30 and rank == 1:
            move(folder[0], "train", "held-out")
        if step == 30 and rank == 2:
            move(folder[0], "held-out", "train")
        if step % 10 == 0:
            print(rank, step, flush=True)
    if rank == 0:
        shutil.rmtree(folder[0])
    dist.destroy_process_group()


main()
