"""One rank compiles a generated function in its own process for many seconds; the others need none."""

import numpy as np
import torch
import torch.distributed as dist
from numba import njit


def generate(terms: int):
    lines = ["def kernel(values):", "    total = 0.0"]
    lines += [
        f"    total += np.sin(values[{term % 8}] * {term}.5) if total < {term} else {term}.0" for term in range(terms)
    ]
    space = {"np": np}
    exec("\n".join([*lines, "    return total"]), space)
    return njit(space["kernel"])


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 2:
        print(generate(200)(np.arange(8.0)))
    dist.barrier()
    dist.destroy_process_group()


main()
