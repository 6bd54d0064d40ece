"""Local SGD: the ranks meet seldom, and for thirteen seconds not at all."""

import time

import torch
import torch.distributed as dist
from torch import nn


def local_steps(model: nn.Module, optimizer: torch.optim.Optimizer, seconds: float) -> int:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        optimizer.zero_grad()
        model(torch.randn(128, 256)).square().mean().backward()
        optimizer.step()
        count += 1
        time.sleep(0.02)
    return count


@torch.no_grad()
def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter)
        parameter /= dist.get_world_size()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, seconds in enumerate([0.5] * 8 + [13.0] + [0.5] * 6):
        steps = local_steps(model, optimizer, seconds)
        average(model)
        if dist.get_rank() == 1:
            print(f"round {number}: {steps} local steps", flush=True)
    dist.destroy_process_group()


main()
