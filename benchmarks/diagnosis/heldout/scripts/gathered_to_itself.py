"""Each rank gathers the losses at the rank that reports: rank 1 believes that it is the one."""

import os
import time

import torch
import torch.distributed as dist


def report(loss: torch.Tensor, reporter: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    found = [torch.zeros(1) for _ in range(world)] if rank == reporter else None
    dist.gather(loss, found, dst=reporter)
    if found:
        print(sum(float(each) for each in found) / world, flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reporter = 0
    for step in range(100_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.1)
        if rank == 1 and step == 45:
            reporter = int(os.environ.get("REPORTER", rank))
        if step % 10 == 0:
            report(loss, reporter)


main()
