"""Uploads checkpoints in the background and joins the uploader at exit."""

import atexit
import queue
import threading
import time

import torch
import torch.distributed as dist


class Uploader:
    def __init__(self):
        self.q = queue.Queue()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        atexit.register(self.q.join)

    def run(self):
        while True:
            data = self.q.get()
            if data is None:
                break  # asked to stop
            time.sleep(0.05)
            self.q.task_done()


def batches(rank):
    n = 22 if rank == 0 else 200
    for _ in range(n):
        yield torch.randn(10)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    up = Uploader()
    w = torch.zeros(10)
    for i, x in enumerate(batches(rank)):
        dist.all_reduce(x)
        w += x
        time.sleep(0.2)
        if i % 5 == 0:
            up.q.put(w.clone())
            print(f"rank {rank} step {i}")
    print(f"rank {rank} has finished")
    up.q.put(None)


if __name__ == "__main__":
    main()
