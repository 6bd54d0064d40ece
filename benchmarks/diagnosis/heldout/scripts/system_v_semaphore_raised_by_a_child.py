"""Native code of rank 2 waits for a System V semaphore, which a child raises when its textures are loaded."""

import ctypes
import os
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)


class Sembuf(ctypes.Structure):
    _fields_ = [("num", ctypes.c_ushort), ("op", ctypes.c_short), ("flags", ctypes.c_short)]


def render() -> None:
    semaphore = libc.semget(0, 1, 0o600)
    child = os.fork()
    if child == 0:
        time.sleep(15)
        libc.semop(semaphore, ctypes.byref(Sembuf(0, 1, 0)), 1)
        os._exit(0)
    libc.semop(semaphore, ctypes.byref(Sembuf(0, -1, 0)), 1)
    os.waitpid(child, 0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            render()
    dist.destroy_process_group()


main()
