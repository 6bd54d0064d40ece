"""A rank has idle helpers, an empty queue and an unused pool, and interpolates for sixteen seconds on its own."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    jobs: queue.Queue[int] = queue.Queue()
    never = threading.Event()
    threading.Thread(target=jobs.get, daemon=True).start()
    threading.Thread(target=never.wait, daemon=True).start()
    pool = ThreadPoolExecutor(4)
    list(pool.map(abs, range(8)))
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        until, image = time.monotonic() + 16, torch.rand(1, 3, 32, 32)
        while time.monotonic() < until:
            torch.nn.functional.interpolate(image, scale_factor=3, mode="bicubic")
    dist.barrier()
    dist.destroy_process_group()


main()
