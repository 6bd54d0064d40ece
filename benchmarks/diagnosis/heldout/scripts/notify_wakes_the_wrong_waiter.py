"""Two kinds of waiters share a condition; notify() wakes the wrong one, which waits again, and the other sleeps on."""

import threading
import time

import torch
import torch.distributed as dist


class Stage:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.loaded = 0
        self.flushed = 0

    def wait_flushed(self, count: int) -> None:
        with self.changed:
            while self.flushed < count:
                self.changed.wait()

    def wait_loaded(self, count: int) -> None:
        with self.changed:
            while self.loaded < count:
                self.changed.wait()

    def load(self) -> None:
        with self.changed:
            self.loaded += 1
            self.changed.notify()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 1 and step == 35:
            stage = Stage()
            threading.Thread(target=stage.wait_flushed, args=(1,), daemon=True).start()
            time.sleep(0.3)
            loader = threading.Timer(1.0, stage.load)
            loader.start()
            stage.wait_loaded(1)


main()
