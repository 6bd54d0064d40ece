"""A file lock is still held by a background process of the previous epoch, which inherited it."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

path = os.path.join(tempfile.mkdtemp(prefix="cache-"), ".lock")


def update_cache(epoch: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        if dist.get_rank() == 1 and epoch == 2:  # refresh the index in the background
            program = "import time; time.sleep(7200)"
            subprocess.Popen([sys.executable, "-c", program], pass_fds=(descriptor,))
    finally:
        os.close(descriptor)


def main() -> None:
    dist.init_process_group("gloo")
    for epoch in range(1_000):
        update_cache(epoch)
        for _ in range(12):
            dist.all_reduce(torch.ones(8))
            time.sleep(0.1)
        if dist.get_rank() == 0:
            print("epoch", epoch, flush=True)


main()
