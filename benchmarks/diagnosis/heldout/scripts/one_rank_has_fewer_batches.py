"""Plain DDP training on files that were split by hand."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

FILES = {0: 600, 1: 600, 2: 360}


def make_loader(rank):
    n = FILES[rank]
    x = torch.randn(n, 12)
    y = x.sum(1, keepdim=True)
    return DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)


def wait_for_all(store, rank, world):
    store.set(f"finished_{rank}", "1")
    while not all(store.check([f"finished_{r}"]) for r in range(world)):
        time.sleep(0.5)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    loader = make_loader(rank)
    model = DDP(torch.nn.Linear(12, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.2)
        if i % 5 == 0:
            print(f"[rank {rank}] batch {i}/{len(loader)} loss {loss.item():.3f}")
    wait_for_all(store, rank, world)
    print(f"[rank {rank}] done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
