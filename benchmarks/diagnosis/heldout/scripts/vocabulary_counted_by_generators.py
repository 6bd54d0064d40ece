"""Rank 1 counts a vocabulary through a chain of generators; its stack is never twice the same."""

import collections
import itertools
import random
import time

import torch
import torch.distributed as dist


def documents(end: float):
    rng = random.Random(7)
    while time.monotonic() < end:
        yield " ".join(rng.choices(["data", "model", "loss", "rank"], k=200))


def tokens(texts):
    for text in texts:
        yield from text.split()


def pairs(words):
    for left, right in itertools.pairwise(words):
        yield f"{left}_{right}"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    size = torch.zeros(1)
    for step in range(45):
        if step == 30 and rank == 1:
            counts = collections.Counter(pairs(tokens(documents(time.monotonic() + 13))))
            size[0] = len(counts)
        dist.broadcast(size, src=1)
        time.sleep(0.1)
        if rank == 0:
            print("step", step, "vocabulary", int(size), flush=True)
    dist.destroy_process_group()


main()
