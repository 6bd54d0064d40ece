"""Two ranks want the shared disk and step back for each other, by random times, until one finds it free."""

import random
import time

import torch
import torch.distributed as dist


def enter(store, me: int, other: int) -> int:
    tries = 0
    while True:
        tries += 1
        store.set(f"wants/{me}", "1")
        time.sleep(0.3)
        if store.get(f"wants/{other}") == b"0":
            return tries
        store.set(f"wants/{me}", "0")
        time.sleep(random.uniform(0.5, 2.5))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(rank)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"wants/{rank}", "0")
    for step in range(60):
        dist.all_reduce(torch.rand(5))
        time.sleep(0.03)
        if step == 30 and rank > 0:
            tries = enter(store, rank, 3 - rank)
            print(f"rank {rank} spills after {tries} tries", flush=True)
            time.sleep(8)
            store.set(f"wants/{rank}", "0")
    dist.destroy_process_group()


main()
