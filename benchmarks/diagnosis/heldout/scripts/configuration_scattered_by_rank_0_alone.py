"""Rank 0 scatters one configuration each, while the others still expect the same one by broadcast."""

import time

import torch
import torch.distributed as dist


def share(configurations: list, rank: int) -> dict:
    if rank == 0:
        mine: list = [None]
        dist.scatter_object_list(mine, configurations, src=0)
        return mine[0]
    one: list = [None]
    dist.broadcast_object_list(one, src=0)
    return one[0]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if step == 40:
            print(share([{"seed": n} for n in range(dist.get_world_size())], rank), flush=True)


main()
