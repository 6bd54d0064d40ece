"""Rank 0 waits for an event that a timer sets when the embargo of a data set is over."""

import threading
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
            open_ = threading.Event()
            threading.Timer(15, open_.set).start()
            open_.wait()
    dist.destroy_process_group()


main()
