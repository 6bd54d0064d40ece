"""One of a rank's DataLoader processes is stopped by a signal."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Images(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 1 and index == 160 and get_worker_info():
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.02)
        return torch.full((3, 8, 8), float(index))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Images(rank), batch_size=4, num_workers=2)
    for step, images in enumerate(loader):
        mean = images.mean()
        dist.all_reduce(mean)
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {mean.item():.1f}", flush=True)


if __name__ == "__main__":
    main()
