"""Three threads of a rank meet at a threading.Barrier after parts of very different size."""

import threading
import time

import torch
import torch.distributed as dist


def part(seconds: float, meeting: threading.Barrier, results: list) -> None:
    end = time.monotonic() + seconds
    total = 0.0
    while time.monotonic() < end:
        total += float(torch.rand(50, 50).sum())
        time.sleep(0.01)
    meeting.wait()
    results.append(total)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(20):
        dist.all_reduce(torch.rand(2))
    results: list = []
    lengths = [0.1, 0.2, 16.0] if rank == 1 else [0.1, 0.1, 0.1]
    meeting = threading.Barrier(4)
    for seconds in lengths:
        threading.Thread(target=part, args=(seconds, meeting, results)).start()
    meeting.wait()
    for _ in range(40):
        dist.all_reduce(torch.rand(2))
        time.sleep(0.02)
    print(rank, len(results), flush=True)
    dist.destroy_process_group()


main()
