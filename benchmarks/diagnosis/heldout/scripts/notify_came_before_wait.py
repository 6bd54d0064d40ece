"""A loader thread announces each new buffer by a condition."""

import threading
import time

import torch
import torch.distributed as dist


class Buffer:
    def __init__(self):
        self.cond = threading.Condition()
        self.data = None

    def fill(self, n):
        with self.cond:
            self.data = torch.randn(n)
            self.cond.notify_all()

    def take(self):
        with self.cond:
            self.cond.wait()
            data, self.data = self.data, None
            return data


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buf = Buffer()
    total = torch.zeros(128)
    for step in range(200):
        filler = threading.Timer(0.4, buf.fill, args=(128,))
        filler.start()
        if rank == 2 and step == 10:
            time.sleep(1.5)  # a slow augmentation
        x = buf.take()
        dist.all_reduce(x)
        total += x
        if step % 5 == 0:
            print(f"rank {rank} step {step} mean {total.mean():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
