"""Each rank gathers its statistics in an exit handler; rank 2 meets a broken record, and is the only one there."""

import atexit
import time

import torch
import torch.distributed as dist

seen = 0


def gather_statistics() -> None:
    found: list = [None] * dist.get_world_size()
    dist.all_gather_object(found, seen)
    print("samples seen:", sum(found), flush=True)


def main() -> None:
    global seen
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    atexit.register(gather_statistics)
    for step in range(100_000):
        label = "?" if rank == 2 and step == 40 else "3"
        seen += 1
        dist.all_reduce(torch.tensor([float(int(label))]))
        time.sleep(0.1)


main()
