"""Writes snapshots in forked children and lets at most one of them run at a time."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def snapshot(weights):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.5)
        os.write(1, f"snapshot of {len(weights)} bytes\n".encode())
        os._exit(0)
    return pid


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    writer = None
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
        if rank == 2 and step % 20 == 10:
            while writer is not None and is_running(writer):
                time.sleep(0.2)
            writer = snapshot(model.module.weight.detach().numpy().tobytes())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
