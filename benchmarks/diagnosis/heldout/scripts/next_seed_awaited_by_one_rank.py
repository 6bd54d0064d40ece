"""A broadcast of the next epoch's seed, started ahead with async_op, which one rank starts an epoch too early."""

import time

import torch
import torch.distributed as dist


class Seeds:
    def __init__(self, source: int) -> None:
        self.source = source
        self.value = torch.zeros(1, dtype=torch.long)

    def request(self, epoch: int):
        if dist.get_rank() == self.source:
            self.value.fill_(1234 + epoch)
        return dist.broadcast(self.value, src=self.source, async_op=True)


def epochs_between(rank: int, epoch: int) -> int:
    return 1 if rank == 1 and epoch == 3 else 2


dist.init_process_group("gloo")
rank, seeds, next_change = dist.get_rank(), Seeds(source=0), 1
for epoch in range(100_000):
    if epoch == next_change:
        handle = seeds.request(epoch)
        next_change += epochs_between(rank, epoch)
        handle.wait()
    for _ in range(8):
        noise = torch.rand(12)
        dist.all_reduce(noise)
        time.sleep(0.1)
    if rank == 2:
        print(f"epoch {epoch} seed {seeds.value.item()}", flush=True)
