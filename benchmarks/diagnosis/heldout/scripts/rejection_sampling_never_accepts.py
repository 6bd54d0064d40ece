"""Samples hard negatives until there are enough of them."""

import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def hard_negatives(rng, margin, count):
    out = []
    while len(out) < count:
        a, b = rng.random(), rng.random()
        if abs(a - b) > margin:
            out.append((a, b))
    return torch.tensor(out)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = random.Random(100 + rank)
    net = DDP(torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    margin = 0.2
    for step in range(300):
        batch = hard_negatives(rng, margin, 32)
        loss = (net(batch).squeeze() - (batch[:, 0] - batch[:, 1])).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 2:
            margin *= 1.12
        time.sleep(0.2)
        if step % 5 == 0:
            print(f"rank {rank} step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
