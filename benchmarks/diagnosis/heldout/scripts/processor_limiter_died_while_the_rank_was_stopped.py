"""A limiter stops and continues the rank so that it takes half a processor. It dies while the rank is stopped."""

import os
import signal
import time

import torch
import torch.distributed as dist


def limit(pid: int) -> None:
    for slice_ in range(30):
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
        if slice_ == 29:
            os._exit(1)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    me = os.getpid()
    if rank == 0 and os.fork() == 0:
        limit(me)
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)


main()
