"""Rank 0's prefetch thread reads from a slow share: its queue is empty for some seconds at a time."""

import queue
import threading
import time

import torch
import torch.distributed as dist


class SlowShare:
    def __init__(self, slow: bool) -> None:
        self.slow = slow

    def read(self, number: int) -> torch.Tensor:
        if self.slow and number in (30, 31, 32):
            for _ in range(10):
                time.sleep(0.5)  # one block of the file
        return torch.full((8,), float(number))


def prefetch(share: SlowShare, batches: queue.Queue) -> None:
    for number in range(60):
        batches.put(share.read(number))
    batches.put(None)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches: queue.Queue[torch.Tensor | None] = queue.Queue(maxsize=2)
    threading.Thread(target=prefetch, args=(SlowShare(rank == 0), batches), daemon=True).start()
    step = 0
    while (batch := batches.get()) is not None:
        dist.all_reduce(batch)
        time.sleep(0.1)
        step += 1
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
