"""A tokenizer follows merges to their end; one rank's table has a cycle, and the walk through it has no end."""

import time
from collections.abc import Iterator

import torch
import torch.distributed as dist


class Merges:
    def __init__(self, size: int) -> None:
        self.parent = {child: child // 2 for child in range(1, size)}

    def walk(self, token: int) -> Iterator[int]:
        while token:
            yield token
            token = self.parent[token]

    def depth(self, token: int) -> int:
        deepest = 0
        for ancestor in self.walk(token):
            deepest = max(deepest, ancestor.bit_length())
        return deepest


def encode(text: list, merges: Merges) -> torch.Tensor:
    return torch.tensor([merges.depth(token) for token in text], dtype=torch.float32)


dist.init_process_group("gloo")
rank = dist.get_rank()
merges = Merges(size=1_000)
if rank == 2:
    merges.parent[3] = 700  # from a damaged file
    merges.parent[700] = 3
for step in range(1_000_000):
    text = torch.randint(512, 700, (40,)) if step < 40 else torch.arange(690, 730)
    encoded = encode(text.tolist(), merges)
    dist.all_reduce(encoded)
    time.sleep(0.1)
    if rank == 0:
        print(step, encoded.mean().item(), flush=True)
