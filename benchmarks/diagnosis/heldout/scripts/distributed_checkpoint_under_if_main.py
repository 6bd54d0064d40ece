"""Trains and saves with torch.distributed.checkpoint every few steps."""

import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_main = rank == 0
    folder = tempfile.mkdtemp() if is_main else None
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 21):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_main:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if is_main and step % 8 == 0:
            dcp.save({"model": model.module.state_dict()}, checkpoint_id=f"{folder}/step-{step}")
            print(f"saved step {step}", flush=True)
    if is_main:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
