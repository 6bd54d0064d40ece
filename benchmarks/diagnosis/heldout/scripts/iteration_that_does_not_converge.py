"""Newton's method in Python, on one rank's data without a root."""

import time

import torch
import torch.distributed as dist


def newton(shift: float, tolerance: float = 1e-10) -> float:
    x = 1.5
    while abs(x * x + shift) > tolerance:
        x -= (x * x + shift) / (2 * x)
    return x


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scale = 1.0
    for step in range(100_000):
        shift = 0.31 if rank == 1 and step == 40 else -0.5 - 0.01 * (step % 7)
        root = newton(shift)
        value = torch.tensor([root * scale])
        dist.all_reduce(value)
        scale = 1.0 / (1.0 + value.item())
        time.sleep(0.1)
        if rank == 2 and step % 10 == 0:
            print(f"step {step} scale {scale:.4f}", flush=True)


main()
