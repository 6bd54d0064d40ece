"""The first rank tries sixteen settings of its own before training, and broadcasts the best of them."""

import time

import torch
import torch.distributed as dist


def try_setting(rate: float) -> float:
    weights, target = torch.zeros(32), torch.rand(32)
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        weights -= rate * (weights - target)
        time.sleep(0.0005)
    return float((weights - target).norm())


def main() -> None:
    dist.init_process_group("gloo")
    best = torch.zeros(1)
    if dist.get_rank() == 0:
        best[0] = min((try_setting(rate / 16), rate / 16) for rate in range(1, 17))[1]
    dist.broadcast(best, src=0)
    for step in range(20):
        dist.all_reduce(torch.rand(16))
    dist.destroy_process_group()


main()
