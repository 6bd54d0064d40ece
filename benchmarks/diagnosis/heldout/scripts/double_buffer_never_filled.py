"""Two buffers change places between a reading thread and the loop; the thread returns where its shard list ends."""

import threading
import time

import numpy as np
import torch
import torch.distributed as dist


class DoubleBuffer:
    def __init__(self, shards: int) -> None:
        self.slots = [np.zeros(128, dtype=np.float32) for _ in range(2)]
        self.full = [threading.Event(), threading.Event()]
        self.empty = [threading.Event(), threading.Event()]
        for event in self.empty:
            event.set()
        threading.Thread(target=self.fill, args=(shards,), daemon=True).start()

    def fill(self, shards: int) -> None:
        for number in range(shards):
            side = number % 2
            self.empty[side].wait()
            self.empty[side].clear()
            self.slots[side][:] = np.random.default_rng(number).random(128)
            self.full[side].set()

    def take(self, number: int) -> torch.Tensor:
        side = number % 2
        self.full[side].wait()
        batch = torch.from_numpy(self.slots[side].copy())
        self.full[side].clear()
        self.empty[side].set()
        return batch


dist.init_process_group("gloo")
RANK = dist.get_rank()
buffers = DoubleBuffer(shards=38 if RANK == 2 else 10_000)
for number in range(10_000):
    mean = buffers.take(number).mean()
    dist.all_reduce(mean)
    time.sleep(0.1)
    if RANK == 0:
        print(f"shard {number}: {mean.item() / 3:.4f}", flush=True)
