"""After an epoch each rank's loader process resumes in the middle of a stream, and reads and drops what was before."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, skip: int, take: int) -> None:
        self.skip, self.take = skip, take

    def records(self):
        for number in range(self.skip + self.take):
            if number % 100 == 0:
                time.sleep(0.1)
            yield float(sum(range(number % 1_000)))

    def __iter__(self):
        for number, value in enumerate(self.records()):
            if number >= self.skip:
                yield torch.tensor(value)


def epoch(number: int, skip: int) -> None:
    loader = DataLoader(Stream(skip, 80), batch_size=4, num_workers=1, multiprocessing_context="fork")
    for step, batch in enumerate(loader):
        mean = batch.mean()
        dist.all_reduce(mean)
        time.sleep(0.15)
        if step % 5 == 0:
            print(f"rank {dist.get_rank()} epoch {number} step {step}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for number, skip in enumerate((0, 12_000)):
        epoch(number, skip)
    dist.destroy_process_group()
