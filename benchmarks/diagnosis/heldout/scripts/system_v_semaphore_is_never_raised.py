"""Native code waits for a System V semaphore, which its partner, a process that failed at start, was to raise."""

import ctypes
import subprocess
import sys
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)


class Sembuf(ctypes.Structure):
    _fields_ = [("num", ctypes.c_ushort), ("op", ctypes.c_short), ("flags", ctypes.c_short)]


def render(scene: str) -> None:
    semaphore = libc.semget(0, 1, 0o600)
    subprocess.Popen([sys.executable, "-c", f"import renderer_{scene}"], stderr=subprocess.DEVNULL)
    libc.semop(semaphore, ctypes.byref(Sembuf(0, -1, 0)), 1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 0 and step == 40:
            render("kitchen")


main()
