"""Prepares the second split with a pipeline of external programs before it is trained on."""

import os
import subprocess
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PIPELINE = (
    "seq 1 40 | while read n; do sleep 0.4; echo $n $((n * 7919 % 40)); done | sort -k2n | cut -d' ' -f1 > '{path}'"
)


def train(model, optimizer, numbers, rank, name):
    for step, number in enumerate(numbers):
        optimizer.zero_grad()
        loss = model(torch.full((4, 8), number / 40)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"[rank {rank}] {name} step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, range(40), rank, "first split")
    box = [None]
    if rank == 0:
        path = os.path.join(tempfile.mkdtemp(), "split.txt")
        subprocess.run(PIPELINE.format(path=path), shell=True, check=True)
        with open(path) as file:
            box[0] = [int(line) for line in file]
    dist.broadcast_object_list(box, src=0)
    train(model, optimizer, box[0], rank, "second split")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
