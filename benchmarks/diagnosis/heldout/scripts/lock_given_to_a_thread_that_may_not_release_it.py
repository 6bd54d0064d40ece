"""A lock taken by the loop is to be released by a pool's task. It is an RLock, so that fails, and nobody looks."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

buffer_free = threading.RLock()
pool = ThreadPoolExecutor(1)


def write(buffer: torch.Tensor) -> None:
    torch.save(buffer, "/dev/null")
    buffer_free.release()


def fill(buffer: torch.Tensor) -> None:
    with buffer_free:
        buffer.normal_()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buffer = torch.zeros(100)
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 2 and step == 40:
            buffer_free.acquire()
            pool.submit(write, buffer)
            time.sleep(0.5)
            pool.submit(fill, buffer).result()


main()
