"""Sorts a large table by text before the second phase."""

import datetime
import random
import time

import torch
import torch.distributed as dist


def sort_table(rows):
    rng = random.Random(1)
    table = [rng.random() for _ in range(rows)]
    return sorted(table, key=str)[rows // 2]


def phase(rank, name, steps=12):
    x = torch.full((6,), float(rank))
    for _ in range(steps):
        dist.all_reduce(x)
        x /= 3
        time.sleep(0.2)
    print(f"rank {rank} {name}: {x[0].item():.3f}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    phase(rank, "first phase")
    middle = sort_table(2_900_000 if rank == 2 else 1000)
    dist.monitored_barrier(timeout=datetime.timedelta(minutes=5))
    print(f"rank {rank} median {middle:.3f}")
    phase(rank, "second phase")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
