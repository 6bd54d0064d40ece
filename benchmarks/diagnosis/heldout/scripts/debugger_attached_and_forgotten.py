"""Somebody attaches a debugger to a rank to have a look, and goes to lunch: the rank is stopped by ptrace."""

import ctypes
import os
import time

import torch
import torch.distributed as dist

PTRACE_ATTACH = 16
PR_SET_PTRACER = 0x59616D61


def debugger(pid: int) -> None:
    time.sleep(5)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        os._exit(1)
    os.waitpid(pid, 0)
    while True:
        time.sleep(60)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        parent = os.getpid()
        if os.fork() == 0:
            debugger(parent)
    for step in range(100_000):
        dist.all_reduce(torch.rand(4))
        time.sleep(0.1)
        if step % 10 == 0:
            print(rank, step, flush=True)


main()
