"""One rank takes three times as long as the others for each step, all the time."""

import time

import torch
import torch.distributed as dist


def work(seconds: float) -> torch.Tensor:
    weights = torch.rand(128, 128)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        weights = torch.tanh(weights @ weights.T / 128)
        time.sleep(0.002)
    return weights.sum()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(30):
        dist.all_reduce(work(0.9 if rank == 2 else 0.3))
    dist.destroy_process_group()


main()
