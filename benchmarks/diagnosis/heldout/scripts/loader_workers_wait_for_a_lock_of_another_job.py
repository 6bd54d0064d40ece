"""DataLoader workers take a shared lock on a shard, which a job that rewrites it holds for a while."""

import fcntl
import os
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.path) as shard:
            fcntl.flock(shard, fcntl.LOCK_SH)
            return torch.rand(4)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    descriptor, path = tempfile.mkstemp()
    os.close(descriptor)
    loader = DataLoader(Shard(path), 4, num_workers=1)
    for step, batch in enumerate(loader):
        dist.all_reduce(batch)
        time.sleep(0.05)
        if step == 20 and rank == 0:
            subprocess.run(["setsid", "-f", "flock", path, "sleep", "15"], check=True)
    dist.destroy_process_group()


main()
