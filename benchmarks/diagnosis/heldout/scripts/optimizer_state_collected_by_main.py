"""Trains with a sharded optimizer and writes a full checkpoint in the end."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def save_checkpoint(model, optimizer):
    optimizer.consolidate_state_dict(to=0)
    path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    print(f"saved {os.path.getsize(path)} bytes", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    for step in range(10):
        loss = model(torch.randn(8, 16)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        save_checkpoint(model, optimizer)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
