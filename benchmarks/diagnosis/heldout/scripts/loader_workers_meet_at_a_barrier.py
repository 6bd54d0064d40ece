"""The workers of a DataLoader meet at a barrier between shards, and one has a shard less than the other."""

import multiprocessing
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.meeting = multiprocessing.get_context("fork").Barrier(2)

    def __iter__(self):
        worker = get_worker_info().id
        for shard in range(worker, self.shards, 2):
            for sample in range(8):
                yield torch.tensor([float(shard), float(sample)])
            self.meeting.wait()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    data = Shards(shards=9 if rank == 1 else 400)
    for step, batch in enumerate(DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")):
        model(batch).sum().backward()
        time.sleep(0.1)
        if rank == 0 and step % 5 == 0:
            print("batch", step, flush=True)


if __name__ == "__main__":
    main()
