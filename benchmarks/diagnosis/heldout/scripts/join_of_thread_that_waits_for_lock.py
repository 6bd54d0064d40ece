"""Stopping the prefetcher while its lock is held."""

import threading
import time

import torch
import torch.distributed as dist


class Prefetcher:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.batch = torch.randn(32, 8)
        self.stopping = False
        self.thread = threading.Thread(target=self.fill, name="prefetch", daemon=True)
        self.thread.start()

    def fill(self) -> None:
        while True:
            time.sleep(0.02)
            with self.lock:
                if self.stopping:
                    return
                self.batch = torch.randn(32, 8)

    def next(self) -> torch.Tensor:
        with self.lock:
            return self.batch

    def close(self) -> None:
        with self.lock:
            self.stopping = True
            self.thread.join()


def epoch(number: int, prefetcher: Prefetcher, weight: torch.Tensor) -> None:
    for _ in range(30):
        gradient = prefetcher.next().mean(0)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        time.sleep(0.1)
    print(f"[{dist.get_rank()}] epoch {number} done", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    weight = torch.zeros(8)
    for number in range(1000):
        prefetcher = Prefetcher()
        epoch(number, prefetcher, weight)
        if dist.get_rank() == 1 and number == 1:  # its shard ends here
            prefetcher.close()
