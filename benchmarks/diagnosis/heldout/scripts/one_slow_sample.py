"""One sample of rank 1 is a very long document, which its dataset parses in the rank's own process."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    def __init__(self, rank: int) -> None:
        self.seconds = {25: 16.0} if rank == 1 else {}

    def __len__(self) -> int:
        return 45

    def __getitem__(self, index: int) -> torch.Tensor:
        end, text = time.monotonic() + self.seconds.get(index, 0.0), "<a><b>text</b></a>" * 40
        while True:
            depth = sum(1 if text[n + 1] != "/" else -1 for n in range(len(text)) if text[n] == "<")
            if time.monotonic() >= end:
                return torch.tensor([float(depth)])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step, batch in enumerate(DataLoader(Documents(rank), batch_size=1)):
        mean = batch.mean()
        dist.all_reduce(mean)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
