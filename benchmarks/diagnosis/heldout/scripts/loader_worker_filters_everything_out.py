"""Streams filtered text from shards, over and over."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, rank, min_length):
        self.rank = rank
        self.min_length = min_length

    def texts(self):
        for i in range(300):
            yield "w " * (5 + (i + self.rank) % 20)

    def __iter__(self):
        passes = 0
        while True:
            for text in self.texts():
                words = text.split()
                if len(words) >= self.min_length + 20 * passes * (self.rank == 1):
                    time.sleep(0.012)
                    yield torch.tensor([len(words), passes], dtype=torch.float32)
            passes += 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = iter(DataLoader(Stream(rank, 8), batch_size=12, num_workers=1))
    model = DDP(torch.nn.Linear(2, 1))
    opt = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(400):
        loss = model(next(loader)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
        if step % 6 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
