"""A rank spins on a flag in shared memory that its helper process, now dead, was to set."""

import multiprocessing as mp
import time
from multiprocessing.shared_memory import SharedMemory

import torch
import torch.distributed as dist


def fill(name: str) -> None:
    memory = SharedMemory(name=name)
    for number in range(1, 40):
        while memory.buf[0] == 1:
            time.sleep(0.001)
        memory.buf[1] = number
        memory.buf[0] = 1
    memory.close()


class SharedBatches:
    def __init__(self) -> None:
        self.memory = SharedMemory(create=True, size=2)
        mp.get_context("spawn").Process(target=fill, args=(self.memory.name,), daemon=True).start()

    def next(self) -> int:
        while self.memory.buf[0] != 1:
            pass
        value = self.memory.buf[1]
        self.memory.buf[0] = 0
        return value


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches = SharedBatches() if rank == 0 else None
    for step in range(100_000):
        batch = torch.tensor([float(batches.next() if batches else step)])
        dist.all_reduce(batch)
        time.sleep(0.1)
        if rank == 1 and step % 10 == 0:
            print(f"step {step} {batch.item()}", flush=True)


if __name__ == "__main__":
    main()
