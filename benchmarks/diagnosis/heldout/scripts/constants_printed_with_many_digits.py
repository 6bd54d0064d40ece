"""A rank writes a huge integer in decimal: one call of many seconds that keeps the interpreter lock."""

import sys
import time

import torch
import torch.distributed as dist


def digits(bits: int) -> int:
    sys.set_int_max_str_digits(0)
    return len(str(1 << bits))


def main() -> None:
    dist.init_process_group("gloo")
    bits = 100_000
    for step in range(30):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 2:
        took = 0.0
        while took < 6:  # as many digits as take some seconds on this machine
            begun = time.perf_counter()
            digits(bits)
            took = time.perf_counter() - begun
            bits = int(bits * 1.5)
    dist.barrier()
    dist.destroy_process_group()


main()
