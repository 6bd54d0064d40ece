"""A model whose layers are all frozen on rank 2 is not wrapped there; the others wait in DDP's constructor."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(model: nn.Module) -> nn.Module:
    if any(parameter.requires_grad for parameter in model.parameters()):
        return DistributedDataParallel(model)
    return model


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(40):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4))
    if rank == 2:
        model.requires_grad_(False)
    model = prepare(model)
    while True:
        loss = model(torch.rand(8, 64)).mean()
        if loss.requires_grad:
            loss.backward()
        dist.all_reduce(loss.detach())


main()
