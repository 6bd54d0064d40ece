"""Trains a detector; images without any box are left out of the loss."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Boxes:
    def __init__(self, rank):
        self.counts = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8], [1, 6, 1, 8, 0, 3, 3, 9]][rank]

    def __iter__(self):
        for count in self.counts:
            yield torch.randn(4, 6), torch.rand(count, 4)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (images, boxes) in enumerate(Boxes(rank)):
        if len(boxes) == 0:
            print(f"[rank {rank}] step {step}: no boxes, skipping", flush=True)
            continue
        loss = (model(images).mean(0) - boxes.mean(0)).abs().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"[rank {rank}] step {step} loss {loss.item():.3f}", flush=True)
    summary = [None] * dist.get_world_size()
    dist.all_gather_object(summary, {"rank": rank, "loss": loss.item()})
    if rank == 0:
        print("summary", summary, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
