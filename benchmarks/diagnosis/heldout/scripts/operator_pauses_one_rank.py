"""Lets an operator pause the training for a moment with a signal, for example to move files."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAUSE = 13


def pause(*_):
    print(f"paused for {PAUSE} s", flush=True)
    time.sleep(PAUSE)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR2, pause)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if rank == 0:
        threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGUSR2)).start()
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 10 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
