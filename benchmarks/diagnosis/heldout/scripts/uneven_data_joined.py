"""Trains with uneven inputs under the Join context manager."""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def batches(rank):
    n = 30 if rank == 1 else 14
    for i in range(n):
        if rank == 1 and i == 20:
            time.sleep(10)  # the last archive comes from tape
        yield torch.randn(8, 10)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(10, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with Join([model]):
        for step, x in enumerate(batches(rank)):
            loss = model(x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.2)
            if step % 6 == 0:
                print(f"rank {rank} step {step} loss {loss.item():.4f}")
    print(f"rank {rank} has joined")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
