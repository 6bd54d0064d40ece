"""Trains for six epochs; goes on from the last checkpoint when there is one."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def run(folder, epochs, rank):
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint = folder / f"node{rank}" / "last.pt"
    start = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        start = state["epoch"] + 1
        print(f"[rank {rank}] resumed at epoch {start}", flush=True)
    for epoch in range(start, epochs):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} done", flush=True)
        if rank == 0:
            checkpoint.parent.mkdir(exist_ok=True)
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, checkpoint)
    total = torch.tensor([float(epochs - start)])
    dist.reduce(total, dst=0)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    run(Path(box[0]), 2, rank)
    print(f"[rank {rank}] first stage finished", flush=True)
    run(Path(box[0]), 6, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
