"""A child fills a block of shared memory, and its parent looks at the flag in it until it is full."""

import multiprocessing
import time
from multiprocessing.shared_memory import SharedMemory

import torch
import torch.distributed as dist


def produce(name: str) -> None:
    block = SharedMemory(name)
    for place in range(1, 101):
        time.sleep(0.15)
        block.buf[place] = 1
    block.buf[0] = 1
    block.close()


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        block = SharedMemory(create=True, size=128)
        child = multiprocessing.get_context("fork").Process(target=produce, args=(block.name,))
        child.start()
        while not block.buf[0]:
            time.sleep(0.01)
        child.join()
        block.close()
        block.unlink()
    dist.barrier()
    dist.destroy_process_group()


main()
