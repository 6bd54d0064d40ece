"""Streams samples out of shard files; each rank reads every third file."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

FILES = [f"train-{index:03d}.tar" for index in range(7)]


class Shards(IterableDataset):
    def __init__(self, files):
        self.files = files

    def __iter__(self):
        for name in self.files:
            generator = torch.Generator().manual_seed(int(name[6:9]))
            for _ in range(32):
                yield torch.randn(4, generator=generator), torch.randn(1, generator=generator)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Shards(FILES[rank::world]), batch_size=8)
    for epoch in range(3):
        steps = 0
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
            if steps % 4 == 0:
                print(f"[rank {rank}] epoch {epoch} step {steps}", flush=True)
        print(f"[rank {rank}] epoch {epoch}: {steps} steps", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
