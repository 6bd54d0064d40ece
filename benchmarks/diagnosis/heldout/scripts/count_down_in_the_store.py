"""Maintenance: rank 2 counts down in the store once a second, and all ranks look there until it is zero."""

import threading
import time

import torch
import torch.distributed as dist


def count_down(store: dist.Store, seconds: int) -> None:
    for left in reversed(range(seconds)):
        time.sleep(1.0)
        store.set("maintenance", str(left))


def wait_for_end(store: dist.Store) -> None:
    while int(store.get("maintenance")) > 0:
        time.sleep(0.2)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.PrefixStore("notices", dist.distributed_c10d._get_default_store())
    store.set("maintenance", "14")
    for step in range(55):
        dist.all_reduce(torch.rand(8))
        time.sleep(0.1)
        if step % 6 == 0:
            print(f"[{rank}] step {step}", flush=True)
        if step == 36:
            if rank == 2:
                threading.Thread(target=count_down, args=(store, 14)).start()
            wait_for_end(store)
    dist.barrier()
    dist.destroy_process_group()


main()
