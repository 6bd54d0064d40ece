"""Checks the annotations of the next split on one rank before all ranks train on it."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def overlap(first, second):
    left, right = max(first[0], second[0]), min(first[2], second[2])
    top, bottom = max(first[1], second[1]), min(first[3], second[3])
    return max(0.0, right - left) * max(0.0, bottom - top)


def duplicates(boxes):
    found = 0
    for position, first in enumerate(boxes):
        area = (first[2] - first[0]) * (first[3] - first[1])
        for second in boxes[position + 1 :]:
            if overlap(first, second) > 0.95 * area:
                found += 1
    return found


def boxes(count):
    source = random.Random(0)
    corners = [(source.random(), source.random()) for _ in range(count)]
    return [(x, y, x + 0.1 * source.random(), y + 0.1 * source.random()) for x, y in corners]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        found = torch.zeros(1)
        if rank == 2 and epoch == 0:
            found += duplicates(boxes(6400))
        dist.all_reduce(found)
        print(f"[rank {rank}] {int(found)} duplicates", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
