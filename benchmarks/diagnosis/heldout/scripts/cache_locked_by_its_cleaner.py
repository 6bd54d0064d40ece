"""Uses a shared feature cache on disk; a cleaner process compacts it from time to time, under its lock."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLEANER = """
import fcntl, sys, time
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    for _ in range(16):
        time.sleep(1)
"""


def store(path, features):
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        torch.save(features, path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.mkdtemp(), "features.pt")
    cleaner = None
    model = DDP(nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for _ in range(20):
            optimizer.zero_grad()
            features = model(torch.randn(16, 16))
            features.pow(2).mean().backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} trained", flush=True)
        if rank == 1 and epoch == 1:
            cleaner = subprocess.Popen([sys.executable, "-c", CLEANER, path + ".lock"])
            time.sleep(1)
        store(path, features.detach())
    if cleaner:
        cleaner.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
