"""Rank 2 waits for a lock file that another job has, and gets it when that job has built its cache."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock

NEIGHBOUR = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(22)
"""


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 2:
        lock = Path(tempfile.mkdtemp()) / "cache.lock"
        other = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(lock)], stdout=subprocess.PIPE)
        other.stdout.readline()
        with FileLock(lock):
            print("the cache is ours")
        other.wait()
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    dist.destroy_process_group()


main()
