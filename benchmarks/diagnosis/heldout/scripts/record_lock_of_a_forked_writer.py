"""A child of rank 1 holds a POSIX record lock on the index while it appends; the rank waits for it by lockf."""

import fcntl
import os
import tempfile
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            path = tempfile.mktemp()
            child = os.fork()
            if child == 0:
                with open(path, "w") as index:
                    fcntl.lockf(index, fcntl.LOCK_EX)
                    time.sleep(15)
                os._exit(0)
            time.sleep(0.5)
            with open(path, "w") as index:
                fcntl.lockf(index, fcntl.LOCK_EX)
            os.waitpid(child, 0)
    dist.destroy_process_group()


main()
