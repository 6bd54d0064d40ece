"""Each worker of the loader unpacks its part of an archive to local disk before the first sample."""

import os
import tempfile
import time
import zipfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Archived(Dataset):
    def __init__(self, path, pause):
        self.path = path
        self.pause = pause
        self.folder = None

    def __len__(self):
        return 64

    def unpack(self):
        self.folder = tempfile.mkdtemp(prefix=f"worker{get_worker_info().id}-")
        with zipfile.ZipFile(self.path) as archive:
            for name in archive.namelist():
                archive.extract(name, self.folder)
                time.sleep(self.pause)  # the network file system is slow

    def __getitem__(self, index):
        if self.folder is None:
            self.unpack()
        with open(os.path.join(self.folder, f"{index}.txt")) as file:
            return torch.full((8,), float(file.read()))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.mkdtemp(), "data.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for index in range(64):
            archive.writestr(f"{index}.txt", str(index / 64))
    loader = DataLoader(
        Archived(path, 0.22 if rank == 1 else 0.01), batch_size=8, num_workers=2, persistent_workers=True
    )
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for inputs in loader:
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
