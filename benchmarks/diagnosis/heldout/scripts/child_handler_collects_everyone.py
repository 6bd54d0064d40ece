"""Starts short helper programs during the training and collects them as they end."""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ended = []


def collect(*_):
    try:
        while True:
            pid, status = os.waitpid(-1, 0)
            ended.append((pid, status))
    except ChildProcessError:
        pass


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    helpers = []
    if rank == 0:
        signal.signal(signal.SIGCHLD, collect)
    for step in range(400):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if rank == 0 and step == 100:
            helpers.append(subprocess.Popen([sys.executable, "-c", "print('thumbnail written')"]))
        if rank == 0 and step == 200:
            # the board serves until its standard input is closed
            helpers.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
            helpers.append(subprocess.Popen([sys.executable, "-c", "print('thumbnail written')"]))
        if step % 20 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}, {len(ended)} helpers ended", flush=True)
        time.sleep(0.01)
    for helper in helpers:
        if helper.stdin:
            helper.stdin.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
