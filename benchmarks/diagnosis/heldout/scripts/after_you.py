"""Two ranks announce that they want the shared scratch disk, and each lets the other, who wants it too, go first."""

import time

import torch
import torch.distributed as dist


def announce(store, me: int) -> None:
    store.set(f"wants/{me}", "1")


def enter(store, me: int, neighbours: list) -> None:
    while any(store.get(f"wants/{other}") == b"1" for other in neighbours if other != me):
        time.sleep(0.1)  # after you


def leave(store, me: int) -> None:
    store.set(f"wants/{me}", "0")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.PrefixStore("scratch", dist.distributed_c10d._get_default_store())
    store.set(f"wants/{rank}", "0")
    for step in range(10_000):
        # Each rank spills now and then; usually not in the same step.
        spills = step > 0 and step % (15, 16, 24)[rank] == 0
        if spills:
            announce(store, rank)
        dist.all_reduce(torch.rand(5))
        time.sleep(0.1)
        if spills:
            enter(store, rank, [0, 1, 2])
            print(f"rank {rank} spills in step {step}", flush=True)
            leave(store, rank)


main()
