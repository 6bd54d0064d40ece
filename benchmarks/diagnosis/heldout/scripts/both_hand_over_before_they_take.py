"""Two ranks swap their halves of a large embedding table between the epochs."""

import torch
import torch.distributed as dist
from torch import nn


def exchange(table, partner):
    other = torch.empty_like(table)
    dist.send(table, dst=partner)
    dist.recv(other, src=partner)
    return other


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(8, 1)
    table = torch.full((1 << 20, 8), float(rank))
    for epoch in range(3):
        for step in range(5):
            loss = model(table[:16]).mean().detach()
            dist.all_reduce(loss)
            print(f"[rank {rank}] epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        if rank < 2:
            table = exchange(table, 1 - rank)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
