"""A rank computes features in joblib's processes, and the others wait for it."""

import time

import torch
import torch.distributed as dist
from joblib import Parallel, delayed


def feature(number: int) -> float:
    until, value = time.monotonic() + 1.5, float(number)
    while time.monotonic() < until:
        value = (value * 1.0001) % 97
        time.sleep(0.001)
    return value


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        print(sum(Parallel(n_jobs=2)(delayed(feature)(number) for number in range(18))))
    dist.barrier()
    dist.destroy_process_group()


main()
