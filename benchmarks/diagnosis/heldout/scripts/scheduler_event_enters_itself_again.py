"""Rank 1 runs sched.scheduler until it is empty; its usage event enters itself again each time."""

import resource
import sched
import time

import torch
import torch.distributed as dist

scheduler = sched.scheduler()
usage: list = []


def sample() -> None:
    usage.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    scheduler.enter(2, 1, sample)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(9))
        time.sleep(0.1)
        if rank == 1 and step == 30:
            scheduler.enter(0.5, 1, sample)
            scheduler.run()
        if step % 10 == 0:
            print(f"{rank}: {step}", flush=True)


main()
