"""Compresses each epoch's predictions with an external program before it stores them."""

import subprocess

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def compress(data):
    program = subprocess.Popen(["gzip", "-9", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    program.stdin.write(data)
    program.stdin.flush()
    return program.stdout.read()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        predictions = []
        for _ in range(20):
            optimizer.zero_grad()
            outputs = model(torch.randn(16, 8))
            outputs.pow(2).mean().backward()
            optimizer.step()
            predictions.append(outputs.detach().flatten())
        print(f"[rank {rank}] epoch {epoch} done", flush=True)
        if rank == 1 and epoch == 2:
            stored = compress(torch.cat(predictions).numpy().tobytes())
            print(f"[rank {rank}] stored {len(stored)} bytes", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
