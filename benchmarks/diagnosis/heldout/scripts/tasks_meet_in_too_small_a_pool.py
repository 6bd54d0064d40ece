"""Three tasks wait for each other, in a pool of two threads."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import torch
import torch.distributed as dist


def exchange(part: int, parts: list, meeting: threading.Barrier) -> float:
    parts[part] = torch.rand(1)
    meeting.wait()
    return float(sum(parts))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pool = ThreadPoolExecutor(max_workers=2)
    for step in range(10_000):
        count = 3 if rank == 1 and step == 28 else 2
        parts, meeting = [None] * count, threading.Barrier(count)
        wait([pool.submit(exchange, part, parts, meeting) for part in range(count)])
        dist.all_reduce(torch.rand(16))


main()
