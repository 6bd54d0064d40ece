"""Rejection sampling: one rank's curriculum admits none of its samples."""

import random
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Sampler


class Lengths(Dataset):
    def __init__(self, rank: int) -> None:
        self.lengths = [10 + (rank * 100 + n) % 200 for n in range(1_000)]
        if rank == 2:
            self.lengths = [max(length, 50) for length in self.lengths]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(self.lengths[index])])


class Curriculum(Sampler):
    """Samples that are no longer than a bound that falls."""

    def __init__(self, data: Lengths) -> None:
        self.data = data

    def __iter__(self):
        bound = 200
        while True:
            index = random.randrange(len(self.data))
            if self.data.lengths[index] <= bound:
                bound = max(bound - 1, 30)
                yield index


def main() -> None:
    dist.init_process_group("gloo")
    data = Lengths(dist.get_rank())
    for step, batch in enumerate(DataLoader(data, batch_size=4, sampler=Curriculum(data))):
        mean = batch.mean()
        dist.all_reduce(mean)
        time.sleep(0.1)
        if dist.get_rank() == 1 and step % 10 == 0:
            print(f"step {step}: mean length {mean.item() / 3:.1f}", flush=True)


main()
