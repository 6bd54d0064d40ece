"""Rank 2 takes part in the reduction under an open-file-description lock, for which rank 0 waits first."""

import fcntl
import os
import struct
import tempfile
import time

import torch
import torch.distributed as dist

F_OFD_SETLKW = 38
PATH = os.path.join(tempfile.gettempdir(), "vocabulary.lck")


def set_lock(descriptor: int, kind: int) -> None:
    fcntl.fcntl(descriptor, F_OFD_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    descriptor = os.open(PATH, os.O_RDWR | os.O_CREAT)
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if step == 40 and rank == 2:
            set_lock(descriptor, fcntl.F_WRLCK)  # released at the end of the epoch
        if step == 60 and rank == 0:
            set_lock(descriptor, fcntl.F_WRLCK)
            set_lock(descriptor, fcntl.F_UNLCK)


main()
