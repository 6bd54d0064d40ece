"""Rank 0 reads an eventfd that a forked child raises when its staging is complete."""

import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            counter = os.eventfd(0)
            child = os.fork()
            if child == 0:
                time.sleep(15)
                os.eventfd_write(counter, 1)
                os._exit(0)
            os.eventfd_read(counter)
            os.waitpid(child, 0)
    dist.destroy_process_group()


main()
