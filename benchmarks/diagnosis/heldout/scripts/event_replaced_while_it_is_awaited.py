"""A prefetch thread waits for an Event that reset() has replaced by a new one; the loop waits for the thread's batch."""

import queue
import threading
import time

import torch
import torch.distributed as dist


class Feed:
    def __init__(self) -> None:
        self.wanted = threading.Event()
        self.batches: queue.Queue[torch.Tensor] = queue.Queue()
        threading.Thread(target=self.produce, daemon=True).start()

    def produce(self) -> None:
        while True:
            self.wanted.wait()
            self.batches.put(torch.rand(4))
            self.wanted.clear()

    def next(self) -> torch.Tensor:
        self.wanted.set()
        return self.batches.get()

    def reset(self) -> None:
        self.wanted = threading.Event()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    feed = Feed()
    for epoch in range(1000):
        for step in range(20):
            batch = feed.next() if rank == 0 else torch.rand(4)
            dist.all_reduce(batch)
            time.sleep(0.1)
        if epoch == 1:
            feed.reset()


main()
