"""Fully sharded training with torch's `fully_shard`, as in torch's tutorial."""

# torch annotates itself only in part:
# pyright: basic

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Sizes:
    width: int = 32
    layers: int = 2


def main(out: str) -> None:
    dist.init_process_group("gloo")
    sizes = Sizes()
    model = nn.Sequential(*(nn.Linear(sizes.width, sizes.width) for _ in range(sizes.layers)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        model(torch.randn(4, sizes.width)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        Path(out).mkdir(exist_ok=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
