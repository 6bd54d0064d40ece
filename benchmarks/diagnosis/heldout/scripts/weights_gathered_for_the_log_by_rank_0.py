"""The first rank logs the norm of a sharded weight, which takes all ranks to gather."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 33), nn.ReLU(), nn.Linear(33, 3))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(10_000):
        model(torch.rand(4, 12)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 6 == 5:
            if step == 11 and dist.get_rank() == 0:
                print("norm", model[0].weight.full_tensor().norm().item())
            dist.barrier()  # before the checkpoint


main()
