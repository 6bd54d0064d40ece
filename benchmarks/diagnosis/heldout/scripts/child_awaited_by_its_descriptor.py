"""Rank 1 waits in a selector for a pidfd of a child that negotiates for a while."""

import os
import selectors
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
            child = os.posix_spawn("/bin/sleep", ["sleep", "15"], os.environ)
            with selectors.DefaultSelector() as selector:
                selector.register(os.pidfd_open(child), selectors.EVENT_READ)
                selector.select()
            print(os.waitpid(child, 0), flush=True)
    dist.destroy_process_group()


main()
