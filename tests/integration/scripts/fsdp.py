"""Fully sharded training on CPUs: every rank holds a part of the weights, and all of them are equal in the end."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 16)
    targets = inputs.sum(dim=1, keepdim=True)
    losses = []
    for _ in range(30):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    print(f"the loss has fallen: {losses[-1] < losses[0] / 2}; this rank holds {held} of 577 weights", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
