"""Each epoch starts new DataLoader processes; on rank 2 they open a large index first."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


class OpenIndex:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, worker: int) -> None:
        end, index, number = time.monotonic() + self.seconds, {}, 0
        while time.monotonic() < end:
            number += 1
            index[number % 100_000] = hash(str(number))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = TensorDataset(torch.randn(120, 6))
    for epoch in range(3):
        warm_up = OpenIndex(14 if rank == 2 and epoch == 1 else 0.1)
        for (x,) in DataLoader(data, batch_size=8, num_workers=1, worker_init_fn=warm_up):
            mean = x.mean(0)
            dist.all_reduce(mean)
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
