"""A thread holds a lock while it waits on a condition with a limit; the loop wants the lock."""

import threading
import time

import torch
import torch.distributed as dist

table = threading.Lock()
changed = threading.Condition()


def refresh() -> None:
    with table, changed:
        changed.wait(15)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            threading.Thread(target=refresh).start()
            time.sleep(0.5)
            with table:
                print("refreshed", flush=True)
    dist.destroy_process_group()


main()
