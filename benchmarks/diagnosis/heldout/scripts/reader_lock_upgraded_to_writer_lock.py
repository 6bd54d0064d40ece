"""A cache of embeddings guarded by a readers-writer lock."""

import contextlib
import threading
import time

import torch
import torch.distributed as dist


class ReadWriteLock:
    def __init__(self):
        self.cond = threading.Condition()
        self.readers = 0

    @contextlib.contextmanager
    def read(self):
        with self.cond:
            self.readers += 1
        try:
            yield
        finally:
            with self.cond:
                self.readers -= 1
                self.cond.notify_all()

    @contextlib.contextmanager
    def write(self):
        with self.cond:
            while self.readers:
                self.cond.wait(1.0)
            yield


class Cache:
    def __init__(self):
        self.lock = ReadWriteLock()
        self.rows = {i: torch.randn(8) for i in range(20)}

    def get(self, i):
        with self.lock.read():
            if i not in self.rows:
                with self.lock.write():
                    self.rows[i] = torch.randn(8)
            return self.rows[i]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = Cache()
    limit = 20 if rank != 1 else 21
    for step in range(500):
        v = cache.get(step % limit).clone()
        dist.all_reduce(v)
        time.sleep(0.2)
        if step % 5 == 0:
            print(f"rank {rank} step {step} |v| {v.norm():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
