"""Rank 0 waits for the lines of a planner process and broadcasts them as objects; the others wait for that."""

import subprocess
import time

import torch
import torch.distributed as dist


def plan() -> list:
    planner = subprocess.Popen(["sh", "-c", "for n in 1 2 3; do sleep 5; echo part $n; done"], stdout=subprocess.PIPE)
    return planner.stdout.read().splitlines()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if step == 40:
            plans = [plan() if rank == 0 else None]
            dist.broadcast_object_list(plans, src=0)
            print(rank, plans, flush=True)
    dist.destroy_process_group()


main()
