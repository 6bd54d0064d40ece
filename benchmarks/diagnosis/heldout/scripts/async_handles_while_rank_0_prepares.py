"""All start an all-reduce with async_op and wait for it later; rank 0 first prepares its part for a while."""

import difflib
import itertools
import time

import torch
import torch.distributed as dist


def deduplicate(texts: list, seconds: float) -> int:
    doubles, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for left, right in itertools.pairwise(texts):
            doubles += difflib.SequenceMatcher(None, left, right).ratio() > 0.9
    return doubles


def statistics(rank: int) -> torch.Tensor:
    texts = [f"document {number} about {number % 5}" for number in range(40)]
    return torch.tensor([float(deduplicate(texts, 12.0 if rank == 0 else 0.1))])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(3):
        pending = []
        for _ in range(14):
            pending.append(dist.all_reduce(torch.rand(50), async_op=True))
            time.sleep(0.1)
        for handle in pending:
            handle.wait()
        print(rank, epoch, flush=True)
        if epoch == 1:
            own = statistics(rank)
            handle = dist.all_reduce(own, async_op=True)
            handle.wait()
    dist.destroy_process_group()


main()
