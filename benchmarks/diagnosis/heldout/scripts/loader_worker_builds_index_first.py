"""A DataLoader whose worker builds an index before its first sample."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset):
    def __init__(self, length, seconds):
        self.length, self.seconds, self.index = length, seconds, None

    def build(self):
        end = time.time() + self.seconds
        index = []
        while time.time() < end:
            index = sorted((hash((i, len(index))) % 1000 for i in range(2000)), reverse=True)
        self.index = index

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.index is None:
            self.build()
        return torch.full((4,), self.index[i] / 1000)


def epoch(model, opt, loader, name):
    for step, x in enumerate(loader):
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.15)
        if step % 5 == 0:
            print(f"{name} step {step} loss {loss.item():.4f}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(model, opt, DataLoader(Indexed(100, 0.3), batch_size=8, num_workers=1), f"rank {rank} small")
    seconds = 12 if rank == 1 else 0.3
    epoch(model, opt, DataLoader(Indexed(100, seconds), batch_size=8, num_workers=1), f"rank {rank} large")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
