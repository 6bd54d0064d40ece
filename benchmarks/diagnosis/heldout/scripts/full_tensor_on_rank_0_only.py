"""FSDP2: rank 0 alone calls `full_tensor()` to log a norm."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 100_000):
        optimizer.zero_grad()
        model(torch.randn(6, 12)).sum().backward()
        optimizer.step()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)
        if step % 30 == 0:
            if dist.get_rank() == 0:
                print(f"norm {model[0].weight.full_tensor().norm():.3f}", flush=True)
            dist.monitored_barrier()


main()
