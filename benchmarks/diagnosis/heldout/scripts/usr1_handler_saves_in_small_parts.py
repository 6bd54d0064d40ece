"""A scheduler sends SIGUSR1 to rank 0, whose handler saves at a limited rate."""

import os
import signal
import time

import torch
import torch.distributed as dist


def save(signum, frame) -> None:
    data = bytes(15_000_000)
    with open("/dev/null", "wb") as file:
        for start in range(0, len(data), 1_000_000):
            file.write(data[start : start + 1_000_000])
            time.sleep(1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, save)
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            os.kill(os.getpid(), signal.SIGUSR1)
    dist.destroy_process_group()


main()
