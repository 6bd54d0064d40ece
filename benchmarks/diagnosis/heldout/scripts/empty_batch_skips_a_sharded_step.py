"""A rank without data skips the step of a sharded model, and is at the barrier while the others gather weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(12, 12) for _ in range(3)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for epoch in range(1000):
        for step in range(5):
            batch = torch.rand(0 if rank == 1 and epoch == 2 and step == 4 else 4, 12)
            if not len(batch):
                continue
            model(batch).sum().backward()
            model.zero_grad()
        dist.barrier()


main()
