"""Token ids are spread over a table by open addressing; the shard has one distinct id more than the table has places."""

import time

import torch
import torch.distributed as dist

SIZE = 512


def place(table: list, key: int) -> int:
    slot = key * 31 % SIZE
    while table[slot] is not None and table[slot] != key:
        slot = (slot + 1) % SIZE
    table[slot] = key
    return slot


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table: list = [None] * SIZE
    distinct = 513 if rank == 2 else 400
    for step in range(10_000):
        slots = [place(table, (step * 10 + i) % distinct) for i in range(10)]
        counts = torch.zeros(SIZE)
        counts[slots] = 1
        dist.all_reduce(counts)
        time.sleep(0.08)
        if step % 10 == 0:
            print(rank, step, flush=True)


main()
