"""A shuffle buffer is a deque with a maximal length, filled in one call from a reader that starts over for ever."""

import collections
import itertools
import random

import torch
import torch.distributed as dist


def shuffle_buffer(records, size: int):
    return collections.deque(records, maxlen=size)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shard = [torch.randn(4) for _ in range(30)]
    # Small shards start over, so that all ranks have the same number of steps.
    if rank == 2:
        shard = shard[:7]
    weight = torch.zeros(4)
    for epoch in range(100):
        needed = 20
        reader = itertools.cycle(shard) if len(shard) < needed else iter(shard)
        if epoch < 3:
            reader = itertools.islice(itertools.cycle(shard), needed)
        buffer = shuffle_buffer(reader, needed)
        random.shuffle(buffer)
        for sample in list(buffer)[:needed]:
            dist.all_reduce(sample.clone())
            weight += 0.01 * sample
        print(f"rank {rank} epoch {epoch} {weight.norm():.3f}", flush=True)


main()
