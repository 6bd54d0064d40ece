"""A helper process adds up finished files in an eventfd; the rank reads it once for each file, but a read takes all."""

import os
import time

import torch
import torch.distributed as dist


def decode(counter: int, files: int) -> None:
    for _ in range(files):
        os.eventfd_write(counter, 1)
    os._exit(0)


def decode_all(files: int) -> None:
    counter = os.eventfd(0)
    child = os.fork()
    if child == 0:
        decode(counter, files)
    os.waitpid(child, 0)
    for _ in range(files):
        os.eventfd_read(counter)
    os.close(counter)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 2 and step in (20, 40):
            decode_all(1 if step == 20 else 3)


main()
