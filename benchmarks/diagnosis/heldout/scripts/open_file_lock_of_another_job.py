"""Rank 0 waits for an open-file-description lock, which a process of another job holds for a while."""

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

F_OFD_SETLKW = 38
OTHER = """
import fcntl, os, struct, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.fcntl(descriptor, 38, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
time.sleep(17)
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = tempfile.mktemp()
    if rank == 0:
        subprocess.run(["setsid", "-f", sys.executable, "-c", OTHER, path], check=True)
        time.sleep(0.5)
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
            fcntl.fcntl(descriptor, F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    dist.destroy_process_group()


main()
