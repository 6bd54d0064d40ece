"""The loader's workers are forked while a thread of the parent is in the data set's critical section."""

import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class CachedSet(Dataset):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.lock:
            if index not in self.cache:
                self.cache[index] = torch.rand(4)
            return self.cache[index]

    def clean(self) -> None:
        while True:
            with self.lock:
                time.sleep(0.4)  # walks through the cache
                self.cache.clear()
            time.sleep(0.01)


def main() -> None:
    dist.init_process_group("gloo")
    dataset = CachedSet()
    workers = 0
    if dist.get_rank() == 2:
        threading.Thread(target=dataset.clean, daemon=True).start()
        time.sleep(0.1)
        workers = 2
    for _ in range(100):
        for batch in DataLoader(
            dataset, batch_size=4, num_workers=workers, multiprocessing_context="fork" if workers else None
        ):
            dist.all_reduce(batch.sum())


main()
