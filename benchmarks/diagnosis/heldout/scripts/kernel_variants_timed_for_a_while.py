"""Tries several ways to compute the attention scores and keeps the fastest one."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VARIANTS = {
    "einsum": lambda q, k: torch.einsum("bqd,bkd->bqk", q, k),
    "matmul": lambda q, k: q @ k.transpose(1, 2),
    "bmm": lambda q, k: torch.bmm(q, k.transpose(1, 2)),
    "broadcast": lambda q, k: (q[:, :, None] * k[:, None]).sum(-1),
}


def fastest(budget):
    q, k = torch.randn(4, 96, 64), torch.randn(4, 96, 64)
    best = {}
    for name, variant in VARIANTS.items():
        end = time.monotonic() + budget / len(VARIANTS)
        while time.monotonic() < end:
            start = time.perf_counter()
            variant(q, k)
            best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
    return min(best, key=best.get)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    choice = ["matmul"]
    for step in range(40):
        if step == 10:
            if rank == 0:
                choice = [fastest(budget=16)]
                print(f"the fastest variant is {choice[0]}", flush=True)
            dist.broadcast_object_list(choice, src=0)
        optimizer.zero_grad()
        hidden = model(torch.randn(4, 16, 64))
        loss = VARIANTS[choice[0]](hidden, hidden).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
