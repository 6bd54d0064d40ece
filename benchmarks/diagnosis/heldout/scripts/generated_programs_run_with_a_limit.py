"""Rewards generated programs by running them, each for a few seconds at most."""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PROGRAMS = {
    0: ["print(1)", "print(2)"],
    1: ["print(1)", "while True: pass", "import time; time.sleep(600)"],
    2: ["print(3)"],
}


def reward(source, limit=7):
    try:
        answer = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return -1.0
    return 1.0 if answer.returncode == 0 else 0.0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        rewards = [reward(source) for source in PROGRAMS[rank]] if step == 6 else [0.5]
        optimizer.zero_grad()
        loss = -(sum(rewards) / len(rewards)) * model(torch.randn(16, 8)).sigmoid().log().mean()
        loss.backward()
        optimizer.step()
        print(f"[rank {rank}] step {step} rewards {rewards}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
