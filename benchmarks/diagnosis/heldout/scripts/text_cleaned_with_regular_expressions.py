"""Rank 2 cleans its documents with many regular expressions before its next epoch."""

import random
import re
import time

import torch
import torch.distributed as dist

PATTERNS = [re.compile(pattern) for pattern in (r"\s+", r"https?://\S+", r"(\w)\1{3,}", r"[^\w\s.,]+", r"\b(\w+) \1\b")]


def clean(documents: list[str], seconds: float) -> list[str]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pattern in PATTERNS:
            cleaned = [pattern.sub(" ", document) for document in documents]
    return cleaned


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    documents = ["".join(random.choices("aab cd,.!\n", k=2_000)) for _ in range(100)]
    for epoch in range(4):
        if rank == 2 and epoch == 2:
            documents = clean(documents, 14)
        for _ in range(15):
            dist.all_reduce(torch.tensor([float(len(documents))]))
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch}", flush=True)
    dist.destroy_process_group()


main()
