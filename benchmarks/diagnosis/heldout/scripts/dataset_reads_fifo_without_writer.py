"""A dataset (in the rank's own process) opens a named pipe that its producer no longer writes."""

import os
import tempfile
import time
from pathlib import Path

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Shards(Dataset):
    def __init__(self, folder: Path) -> None:
        self.paths = []
        for number in range(300):
            path = folder / f"{number:05}.txt"
            if number == 151:
                os.mkfifo(path)
            else:
                path.write_text(str(number))
            self.paths.append(path)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> float:
        with self.paths[index].open() as file:
            return float(file.read())


dist.init_process_group("gloo")
shards = Shards(Path(tempfile.mkdtemp(prefix="shards-")))
sampler = DistributedSampler(shards, shuffle=False)
for step, batch in enumerate(DataLoader(shards, batch_size=1, sampler=sampler)):
    value = batch.clone()
    dist.all_reduce(value)
    time.sleep(0.1)
    if step % 10 == 0:
        print(f"rank {dist.get_rank()} step {step}", flush=True)
