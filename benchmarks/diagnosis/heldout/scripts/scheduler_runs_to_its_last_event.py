"""Rank 1 runs sched.scheduler, whose events are seconds apart, until it is empty."""

import sched
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            scheduler, done = sched.scheduler(), []
            for number in range(3):
                scheduler.enter(5 * (number + 1), 1, done.append, (number,))
            scheduler.run()
    dist.destroy_process_group()


main()
