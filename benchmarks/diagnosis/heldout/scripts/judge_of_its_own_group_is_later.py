"""Ranks 0 and 1 train in one group, and rank 2 judges in its own; they meet at the end of each round."""

import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainers, judges = dist.new_group([0, 1]), dist.new_group([2])
    for round_ in range(3):
        group, pause = (judges, 0.35) if rank == 2 else (trainers, 0.05)
        for step in range(36):
            score = torch.rand(1)
            dist.all_reduce(score, group=group)
            time.sleep(pause)
        dist.barrier()
    dist.destroy_process_group()


main()
