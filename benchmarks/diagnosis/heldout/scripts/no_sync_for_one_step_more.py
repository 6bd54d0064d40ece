"""Gradient accumulation with no_sync."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def needs_sync(step, accumulate, last):
    return (step + 1) % accumulate == 0 or step == last


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accumulate = 2
    for step in range(32):
        if step == 12 and rank == 0:
            accumulate = 1_000_000  # the schedule file of this host has a typing error
        x = torch.randn(16, 32)
        sync = needs_sync(step, accumulate, 31)
        with contextlib.nullcontext() if sync else model.no_sync():
            loss = model(x).pow(2).mean()
            loss.backward()
        if sync:
            opt.step()
            opt.zero_grad()
        time.sleep(0.12)
        if step % 5 == 0 and step < 100:
            print(f"rank {rank} step {step} loss {loss.item():.4f}")
    store = dist.distributed_c10d._get_default_store()
    store.set(f"trained/{rank}", "yes")
    store.wait([f"trained/{r}" for r in range(3)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
