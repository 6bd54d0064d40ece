"""Rank 1 joins its snapshot thread, which compresses."""

import lzma
import threading
import time

import torch
import torch.distributed as dist


def compress(data: bytes, seconds: float) -> None:
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        total += len(lzma.compress(data))
    print(f"{total} bytes", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.randn(50_000)
    for step in range(1, 61):
        gradient = torch.randn(50_000)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if step == 30 and rank == 1:
            thread = threading.Thread(target=compress, args=(weight.numpy().tobytes(), 15))
            thread.start()
            thread.join()
    dist.destroy_process_group()


main()
