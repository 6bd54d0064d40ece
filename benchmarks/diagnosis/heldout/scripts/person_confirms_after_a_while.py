"""Rank 0 asks on its standard input whether to overwrite the old run; the person at the terminal thinks for a while."""

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    answer = [None]
    if rank == 0:
        print("The folder is not empty. Overwrite? [y/n] ", end="", flush=True)
        answer[0] = sys.stdin.readline().strip()
    dist.broadcast_object_list(answer)
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.03)
    print(rank, answer, flush=True)
    dist.destroy_process_group()


main()
