"""A reader object with a prefetch thread, made anew for each epoch."""

import queue
import threading
import time

import torch
import torch.distributed as dist


class Prefetcher:
    def __init__(self, length, depth):
        self.q = queue.Queue(maxsize=depth)
        self.length = length
        self.thread = threading.Thread(target=self.fill, args=(self.q, length), daemon=True)
        self.thread.start()

    @staticmethod
    def fill(q, length):
        for _ in range(length):
            q.put(torch.randn(50))

    def __iter__(self):
        for _ in range(self.length):
            yield self.q.get()

    def __del__(self):
        self.thread.join()


def run_epoch(reader, limit, w):
    for i, x in enumerate(reader):
        if i == limit:
            break
        dist.all_reduce(x)
        w.add_(x, alpha=0.01)
        time.sleep(0.2)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    w = torch.zeros(50)
    for epoch in range(20):
        length = 30 if rank == 1 and epoch == 3 else 8
        reader = Prefetcher(length, depth=4)
        run_epoch(reader, 7, w)
        del reader
        print(f"rank {rank}: epoch {epoch} |w| {w.norm():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
