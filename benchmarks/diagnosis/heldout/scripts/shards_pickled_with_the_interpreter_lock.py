"""The first rank pickles a million small objects for each shard, in calls that keep the interpreter lock."""

import pickle
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(20):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        state = [(number, str(number), float(number)) for number in range(1_200_000)]
        until = time.monotonic() + 13
        while time.monotonic() < until:
            pickle.dumps(state)
    dist.barrier()
    for step in range(20):
        dist.all_reduce(torch.rand(16))
    dist.destroy_process_group()


main()
