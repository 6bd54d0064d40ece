"""Converts each epoch's log with an external program, while a resource monitor runs next to the training."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MONITOR = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent: time.sleep(2)"


def convert(epoch):
    seconds = 2 if epoch < 2 else 0  # the first logs are long
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds}); print('converted', {epoch})"])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    subprocess.Popen([sys.executable, "-c", MONITOR])
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        job = convert(epoch) if rank == 2 else None
        for _ in range(200):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        if job is not None:
            if job.poll() is None:
                print(f"[rank {rank}] the conversion still runs", flush=True)
            pid, status = os.wait()
            print(f"[rank {rank}] process {pid} ended with {status}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
