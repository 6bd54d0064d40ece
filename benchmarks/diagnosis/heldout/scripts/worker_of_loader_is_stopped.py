"""Trains from a DataLoader with worker processes."""

import os
import signal
import time

import psutil
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbers(Dataset):
    def __len__(self):
        return 6000

    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.full((6,), i / 6000.0), torch.tensor([i % 2.0])


def suspend_one_worker():
    """As a memory guard on the node does it."""
    workers = psutil.Process().children()
    os.kill(workers[0].pid, signal.SIGSTOP)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Numbers()
    loader = DataLoader(data, batch_size=16, num_workers=2, sampler=DistributedSampler(data))
    model = DDP(torch.nn.Linear(6, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step == 30:
            suspend_one_worker()
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
