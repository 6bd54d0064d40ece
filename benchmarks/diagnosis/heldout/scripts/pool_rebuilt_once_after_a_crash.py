"""A worker of the decoding pool dies; the rank waits for the memory to settle and makes a new pool, which works."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import torch
import torch.distributed as dist


def decode(number: int, heavy: bool) -> int:
    if heavy and number == 21:
        os.kill(os.getpid(), signal.SIGKILL)  # out of memory
    return number * 2


def decode_all(heavy: bool) -> list[int]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(decode, range(40), [heavy] * 40))


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        try:
            decode_all(heavy=True)
        except BrokenProcessPool:
            print("once more in fifteen seconds", flush=True)
            time.sleep(15)
            decode_all(heavy=False)
    dist.barrier()
    dist.destroy_process_group()


main()
