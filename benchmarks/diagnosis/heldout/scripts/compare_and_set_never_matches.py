"""A counter of samples in the store is raised by compare-and-set; the old value is passed as the text of its bytes."""

import time

import torch
import torch.distributed as dist


def add_samples(store, count: int, as_rank: int) -> int:
    while True:
        old = store.get("samples")
        new = str(int(old) + count)
        expected = old.decode() if as_rank != 1 else str(old)
        if store.compare_set("samples", expected, new) == new.encode():
            return int(new)
        time.sleep(0.02)  # another rank was faster


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.PrefixStore("progress", dist.distributed_c10d._get_default_store())
    if rank == 0:
        store.set("samples", "0")
    for step in range(10_000):
        dist.all_reduce(torch.rand(20))
        time.sleep(0.1)
        if step % 20 == 19 and (rank != 1 or step > 50):
            print(rank, "samples so far:", add_samples(store, 640, rank), flush=True)


main()
