"""A loop compiled to native code runs until two values agree; they are not numbers, and it keeps the interpreter lock."""

import numpy as np
import torch
import torch.distributed as dist
from numba import njit


@njit
def fixed_point(values: np.ndarray) -> float:
    mean, before = values.mean(), 0.0
    while not abs(mean - before) < 1e-9:
        before = mean
        mean = 0.5 * (mean + values.mean() / mean)
    return mean


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(10_000):
        values = np.arange(1.0, 9.0)
        if rank == 2 and step == 16:
            values[3] = np.nan
        fixed_point(values)
        dist.all_reduce(torch.rand(16))


main()
