"""Rank 1 finds a stale lock file, and waits until it is old enough to be taken over, as its rule says."""

import os
import tempfile
import time

import torch
import torch.distributed as dist

EXPIRES = 14.0


def take(path: str) -> bool:
    """Whether it had to be taken over."""
    taken_over = False
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return taken_over
        except FileExistsError:
            if time.time() - os.stat(path).st_mtime > EXPIRES:
                os.unlink(path)
                taken_over = True
            else:
                time.sleep(1.0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.mkdtemp(), "build.lock")
    for step in range(52):
        dist.all_reduce(torch.rand(5))
        time.sleep(0.1)
        if rank == 1 and step == 36:
            open(path, "w").close()  # left by a build that was killed a moment ago
            print("taken over:", take(path), flush=True)
        if rank != 1 and step % 6 == 0:
            print(f"{rank}: {step}", flush=True)
    dist.destroy_process_group()


main()
