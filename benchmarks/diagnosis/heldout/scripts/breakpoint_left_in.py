"""`breakpoint()` where the loss is odd, on one rank; standard input is open and silent."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def compute_loss(model: nn.Module, step: int) -> torch.Tensor:
    x = torch.randn(4, 6)
    if dist.get_rank() == 1 and step == 38:
        x[0, 0] = float("nan")
    loss = model(x).square().mean()
    if torch.isnan(loss):
        breakpoint()
    return loss


def main() -> None:
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(100_000):
        optimizer.zero_grad()
        compute_loss(model, step).backward()
        optimizer.step()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"{dist.get_rank()}: step {step}", flush=True)


main()
