"""A sampler thread wakes the training loop through an eventfd when a batch is ready."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Sampler:
    def __init__(self, delay):
        self.ready = os.eventfd(0)
        self.wanted = threading.Semaphore(0)
        self.batch = None
        self.delay = delay
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.wanted.acquire()
            time.sleep(self.delay)
            self.batch = torch.randn(16, 8)
            os.eventfd_write(self.ready, 1)

    def next(self, step):
        self.wanted.release()
        if step % 10 == 5:
            time.sleep(0.1)
            self.reset()
        os.eventfd_read(self.ready)
        return self.batch

    def reset(self):
        """Forgets a wake-up that is left over from the batch before."""
        os.set_blocking(self.ready, False)
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            pass
        os.set_blocking(self.ready, True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sampler = Sampler(delay=0.0 if rank == 1 else 0.3)
    model = nn.Linear(8, 1)
    for step in range(20):
        loss = model(sampler.next(step)).pow(2).mean().detach()
        dist.all_reduce(loss)
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
