"""A sampler orders samples by their last loss. The loader prefetches four batches before the first loss is known."""

import queue
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler, TensorDataset

losses: "queue.Queue[float]" = queue.Queue()


class ByLoss(Sampler):
    def __iter__(self):
        yield [0, 1]
        while True:
            first = int(losses.get() * 1000) % 100
            yield [first, first + 1]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = TensorDataset(torch.rand(200, 4))
    for epoch in range(1000):
        workers = 0 if epoch == 0 or rank != 0 else 2
        loader = DataLoader(data, batch_sampler=ByLoss(), num_workers=workers)
        for step, (batch,) in enumerate(loader):
            loss = batch.mean().reshape(1)
            dist.all_reduce(loss)
            losses.put(float(loss))
            time.sleep(0.1)
            if step == 30:
                break


main()
