"""One rank is stopped by a signal."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(32, 32))
    optimizer = torch.optim.AdamW(model.parameters())
    if rank == 2:
        threading.Timer(5.0, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    for step in range(100_000):
        optimizer.zero_grad()
        model(torch.randn(4, 32)).mean().backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 20 == 0:
            print(f"[{rank}] step {step}", flush=True)


main()
