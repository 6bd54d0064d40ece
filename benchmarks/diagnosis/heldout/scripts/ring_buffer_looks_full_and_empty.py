"""A decoder process passes frames to the training loop through a ring buffer in shared memory."""

import ctypes
import multiprocessing as mp
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

SLOTS, WIDTH = 4, 8
PREFETCH = [3, 4, 2]


class Ring:
    def __init__(self, prefetch):
        self.prefetch = prefetch
        self.frames = torch.zeros(SLOTS, WIDTH).share_memory_()
        self.marks = torch.zeros(2, dtype=torch.int64).share_memory_()  # head, tail

    def put(self, frame):
        while self.marks[0] - self.marks[1] >= self.prefetch:
            time.sleep(0.001)
        self.frames[self.marks[0] % SLOTS] = frame
        self.marks[0] += 1

    def get(self):
        while self.marks[0] % SLOTS == self.marks[1] % SLOTS:
            time.sleep(0.001)
        frame = self.frames[self.marks[1] % SLOTS].clone()
        self.marks[1] += 1
        return frame


def decode(ring):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # ends with its parent
    for number in range(1000):
        time.sleep(0.2 if number < 10 else 0.0)  # the first frames are large
        ring.put(torch.rand(WIDTH))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ring = Ring(PREFETCH[rank])
    mp.get_context("fork").Process(target=decode, args=(ring,), daemon=True).start()
    model = nn.Linear(WIDTH, 1)
    for step in range(40):
        loss = model(ring.get()).pow(2).mean().detach()
        dist.all_reduce(loss)
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
