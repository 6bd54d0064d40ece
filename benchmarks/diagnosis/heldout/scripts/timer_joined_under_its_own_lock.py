"""A rank cancels and joins its flush timer under the lock for which the timer's function already waits."""

import threading
import time

import torch
import torch.distributed as dist


class Metrics:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: list = []
        self.start()

    def start(self) -> None:
        self.timer = threading.Timer(0.5, self.flush)
        self.timer.start()

    def flush(self) -> None:
        with self.lock:
            self.rows.clear()
            self.start()

    def close(self) -> None:
        with self.lock:
            time.sleep(1)  # writes the last rows
            self.timer.cancel()
            self.timer.join()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics = Metrics() if rank == 0 else None
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if metrics and step == 40:
            metrics.close()


main()
