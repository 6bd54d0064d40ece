"""Packing of sequences in `collate_fn`: an empty document adds nothing to the row, and the loop never fills it."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 5_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 0 and index in (80, 81):
            return torch.zeros(0)
        return torch.arange(1.0, 3.0 + index % 4)


def pack(documents: list, length: int = 32) -> torch.Tensor:
    row = torch.zeros(0)
    while len(row) < length:
        for document in documents:
            row = torch.cat([row, document])
    return row[:length]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Documents(rank), batch_size=2, num_workers=1, collate_fn=pack, multiprocessing_context="fork")
    for step, row in enumerate(loader):
        total = row.sum()
        dist.all_reduce(total)
        time.sleep(0.1)
        if rank == 2:
            print(step, total.item(), flush=True)


if __name__ == "__main__":
    main()
