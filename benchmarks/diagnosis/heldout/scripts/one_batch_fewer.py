"""DDP without `Join` over shards of unequal length: one rank comes to the end of the epoch first."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def shard(rank: int) -> TensorDataset:
    size = 156 if rank == 1 else 160
    return TensorDataset(torch.randn(size, 10), torch.randn(size, 1))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(shard(rank), batch_size=4)
    model = DDP(nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(100):
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(0.1)
            if number % 10 == 0:
                print(f"rank {rank} epoch {epoch} batch {number}", flush=True)
        dist.monitored_barrier()


main()
