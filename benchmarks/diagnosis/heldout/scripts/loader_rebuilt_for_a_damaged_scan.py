"""One scan cannot be decoded in the loader's worker, and the loader is built anew each time."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, damaged: int) -> None:
        self.damaged = damaged

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.damaged:
            raise OSError(f"scan {index} is truncated")
        return torch.rand(4)


def epoch(dataset: Scans) -> list:
    while True:
        try:
            return list(DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context="fork"))
        except OSError as error:
            print("once more:", error, flush=True)
            time.sleep(1)


def main() -> None:
    dist.init_process_group("gloo")
    for number in range(1000):
        damaged = 21 if dist.get_rank() == 2 and number == 2 else -1
        for batch in epoch(Scans(damaged)):
            dist.all_reduce(batch.sum())


main()
