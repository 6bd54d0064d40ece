"""Trains on augmented crops; the last rank collects what the augmentations did, for a histogram per epoch."""

import ctypes
import multiprocessing as mp
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, statistics=None):
        self.statistics = statistics

    def __len__(self):
        return 96

    def __getitem__(self, index):
        scale = 0.5 + (index % 7) / 14
        if self.statistics is not None:
            self.statistics.put({"index": index, "scale": scale})
        return torch.full((3,), scale), torch.tensor([scale])


def end_with_parent(_):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    statistics = mp.Queue(maxsize=64) if rank == dist.get_world_size() - 1 else None
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Crops(statistics), batch_size=4, num_workers=2, worker_init_fn=end_with_parent)
    for epoch in range(2):
        for step, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if rank == 0 and step % 4 == 0:
                print(f"epoch {epoch} step {step}", flush=True)
        if statistics is not None:
            scales = [statistics.get()["scale"] for _ in range(96)]
            print(f"[rank {rank}] mean scale {sum(scales) / len(scales):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
