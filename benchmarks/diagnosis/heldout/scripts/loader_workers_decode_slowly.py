"""Two loader workers of one rank take two seconds for each sample, so that each batch comes after some seconds."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Videos(Dataset):
    def __init__(self, pause: float) -> None:
        self.pause = pause

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.pause)  # a remote decoder
        return torch.rand(8)


def main() -> None:
    dist.init_process_group("gloo")
    pause = 2.0 if dist.get_rank() == 1 else 0.01
    loader = DataLoader(Videos(pause), batch_size=4, num_workers=2, prefetch_factor=1, multiprocessing_context="fork")
    for batch in loader:
        dist.all_reduce(batch.sum())
    dist.destroy_process_group()


main()
