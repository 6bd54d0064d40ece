"""A DataLoader whose worker processes need eight seconds for some batches: video is decoded."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in (10, 11):
            self.decode(8)
        return torch.full((2, 4), float(index))

    def decode(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(n * n for n in range(50_000))
            time.sleep(0.01)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step, clip in enumerate(DataLoader(Clips(), batch_size=1, num_workers=1, prefetch_factor=2)):
        for _ in range(3):
            gradient = clip.mean()
            dist.all_reduce(gradient)
            time.sleep(0.1)
        if step % 5 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
