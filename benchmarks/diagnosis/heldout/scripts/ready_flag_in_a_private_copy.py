"""The child sets a flag in a tensor that was never moved to shared memory."""

import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def fill(buffer: torch.Tensor, ready: torch.Tensor) -> None:
    buffer.copy_(torch.rand(64))
    ready[0] = 1


def main() -> None:
    dist.init_process_group("gloo")
    buffer, ready = torch.zeros(64).share_memory_(), torch.zeros(1)
    for step in range(10_000):
        if dist.get_rank() == 0 and step == 12:
            child = mp.get_context("fork").Process(target=fill, args=(buffer, ready))
            child.start()
            while not ready.item():
                time.sleep(0.05)
            child.join()
        dist.all_reduce(torch.rand(16))


main()
