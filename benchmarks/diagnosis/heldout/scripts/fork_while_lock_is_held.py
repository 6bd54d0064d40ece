"""A child is forked while another thread holds a lock; the child wants that lock."""

import os
import threading
import time

import torch
import torch.distributed as dist

cache_lock = threading.Lock()
cache: dict[str, int] = {}


def refresh_forever() -> None:
    while True:
        with cache_lock:
            cache["updated"] = cache.get("updated", 0) + 1
            time.sleep(0.2)
        time.sleep(0.01)


def export() -> int:
    with cache_lock:
        return cache["updated"]


def export_in_child() -> None:
    pid = os.fork()
    if pid == 0:
        export()
        os._exit(0)
    os.waitpid(pid, 0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=refresh_forever, daemon=True).start()
    for step in range(1, 100_000):
        dist.all_reduce(torch.randn(10))
        time.sleep(0.1)
        if step % 40 == 0 and rank == 2:
            for _ in range(20):
                export_in_child()
        if step % 10 == 0 and rank == 0:
            print("step", step, flush=True)


main()
