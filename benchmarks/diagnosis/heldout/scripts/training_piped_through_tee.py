"""Behind a shell and its pipe: a rank joins a prefetcher that waits for a request."""

import queue
import threading

import torch
import torch.distributed as dist


class Prefetcher(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wanted: queue.Queue[int | None] = queue.Queue()

    def run(self) -> None:
        while self.wanted.get() is not None:
            torch.rand(100)

    def close(self, asked: int) -> None:
        if asked % 2 == 0:
            self.wanted.put(None)
        self.join()


def main() -> None:
    dist.init_process_group("gloo")
    for epoch in range(1000):
        prefetcher = Prefetcher()
        prefetcher.start()
        asked = 11 if dist.get_rank() == 1 and epoch == 3 else 10
        for number in range(asked):
            prefetcher.wanted.put(number)
        for step in range(10):
            dist.all_reduce(torch.rand(16))
        prefetcher.close(asked)


main()
