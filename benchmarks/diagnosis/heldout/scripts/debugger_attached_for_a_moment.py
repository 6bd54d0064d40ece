"""A tool attaches to a rank by ptrace, looks at it for a while, and detaches."""

import ctypes
import os
import time

import torch
import torch.distributed as dist

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
PR_SET_PTRACER = 0x59616D61


def look_at(pid: int, seconds: float) -> None:
    libc = ctypes.CDLL(None)
    time.sleep(3)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0:
        os.waitpid(pid, 0)
        time.sleep(seconds)
        libc.ptrace(PTRACE_DETACH, pid, None, None)
    os._exit(0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    child = 0
    if rank == 2:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        me = os.getpid()
        child = os.fork()
        if child == 0:
            look_at(me, 16)
    for step in range(80):
        dist.all_reduce(torch.rand(4))
        time.sleep(0.1)
        if step % 10 == 0:
            print(rank, step, flush=True)
    if child:
        os.waitpid(child, 0)
    dist.destroy_process_group()


main()
