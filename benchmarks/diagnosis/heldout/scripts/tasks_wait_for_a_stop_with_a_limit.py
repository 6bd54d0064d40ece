"""A thread pool's tasks pace themselves by waiting for a stop event with a limit; the loop waits for all of them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
import torch.distributed as dist

stop = threading.Event()


def probe(host: int) -> int:
    for _ in range(3):
        if stop.wait(2.5):
            break
    return host


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            with ThreadPoolExecutor(2) as pool:
                futures = [pool.submit(probe, host) for host in range(4)]
                print([each.result() for each in as_completed(futures)], flush=True)
    dist.destroy_process_group()


main()
