"""Trains a small regression model from shards that another service prepares."""

import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def write_shards(folder, names):
    for name in names:
        np.save(os.path.join(folder, name), np.random.randn(64, 8).astype("float32"))


class ShardDataset(IterableDataset):
    def __init__(self, folder, names):
        self.folder = folder
        self.names = names

    def __iter__(self):
        for name in self.names:
            path = os.path.join(self.folder, name)
            while not os.path.exists(path):
                time.sleep(1.0)  # the preprocessing job is still writing it
            for row in np.load(path):
                time.sleep(0.01)
                yield torch.from_numpy(row)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp(prefix="shards_")
    names = [f"shard_{rank}_{i}.npy" for i in range(8)]
    ready = names[:3] if rank == 1 else names
    write_shards(folder, ready)
    model = DDP(torch.nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(ShardDataset(folder, names), batch_size=16, num_workers=1)
    for step, batch in enumerate(loader):
        loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
