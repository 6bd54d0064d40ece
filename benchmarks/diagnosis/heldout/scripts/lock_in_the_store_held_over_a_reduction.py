"""Rank 1 keeps the lock in the store until its step is over; rank 2 wants it before it takes part in the step."""

import time

import torch
import torch.distributed as dist


class StoreLock:
    def __init__(self, store, rank: int) -> None:
        self.store, self.rank = store, str(rank)

    def __enter__(self) -> None:
        while self.store.compare_set("owner", "free", self.rank) != self.rank.encode():
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self.store.set("owner", "free")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.PrefixStore("lock", dist.distributed_c10d._get_default_store())
    store.set("owner", "free")
    dist.barrier()
    for step in range(10_000):
        loss = torch.rand(16)
        if rank == 1 and step % 18 == 17:
            with StoreLock(store, rank):
                dist.all_reduce(loss)
                print("wrote the log", step)
            continue
        if rank == 2 and step % 18 == 17:
            time.sleep(0.2)
            with StoreLock(store, rank):
                print("wrote the sample", step)
        dist.all_reduce(loss)


main()
