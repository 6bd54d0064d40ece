"""A finalizer takes the lock of the cache, and the collector calls it while that lock is held."""

import gc
import threading
import weakref

import torch
import torch.distributed as dist


class Cache:
    def __init__(self) -> None:
        self.lock, self.sizes = threading.Lock(), {}

    def add(self, page: "Page") -> None:
        with self.lock:
            self.sizes[id(page)] = len(page.rows)
            weakref.finalize(page, self.forget, id(page))
            page.neighbours = [[n] for n in range(2000)]

    def forget(self, key: int) -> None:
        with self.lock:
            self.sizes.pop(key, None)


class Page:
    def __init__(self) -> None:
        self.rows, self.me = [0] * 10, self


def main() -> None:
    dist.init_process_group("gloo")
    cache = Cache()
    gc.disable()
    for step in range(10_000):
        if step == 20 and dist.get_rank() == 1:
            gc.enable()  # that rank is short of memory
        if step < 18 or dist.get_rank() == 1:
            cache.add(Page())
        dist.all_reduce(torch.rand(16))


main()
