"""Rank 1 counts the tokens of its corpus in one call of C code, which keeps the interpreter for a long time."""

import collections
import itertools
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tokens = [i * i % 1009 for i in range(4096)]
    for step in range(60):
        dist.all_reduce(torch.rand(10))
        time.sleep(0.05)
    if rank == 1:
        counts = collections.Counter(itertools.islice(itertools.cycle(tokens), 250_000_000))
        print("most common:", counts.most_common(2), flush=True)
    for step in range(60):
        dist.all_reduce(torch.rand(10))
        time.sleep(0.02)
    print(rank, "done", flush=True)
    dist.destroy_process_group()


main()
