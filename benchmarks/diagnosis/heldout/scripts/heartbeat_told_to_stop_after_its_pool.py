"""The flag that ends the heart-beat is set after the block that waits for it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def beat(stop: threading.Event) -> None:
    while not stop.is_set():
        time.sleep(0.2)


def load_shard(number: int) -> torch.Tensor:
    return torch.full((100,), float(number))


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(30):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        stop = threading.Event()
        with ThreadPoolExecutor() as pool:
            pool.submit(beat, stop)
            shards = list(pool.map(load_shard, range(8)))
        stop.set()
        print(len(shards), "shards")
    for step in range(10_000):
        dist.all_reduce(torch.rand(16))


main()
