"""A filter program answers into a pipe and does not flush; the rank waits for the line that is in the child's buffer."""

import subprocess
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(20):
        dist.all_reduce(torch.rand(4))
        time.sleep(0.1)
    if rank == 1:
        child = subprocess.Popen(
            ["tr", "A-Z", "a-z"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        counts = []
        for line in ["One Two Three\n", "Four Five\n"]:
            child.stdin.write(line)
            child.stdin.flush()
            counts.append(len(child.stdout.readline().split()))
        print(counts)
    for step in range(10_000):
        dist.all_reduce(torch.rand(4))
        time.sleep(0.1)
        print(rank, step, flush=True)


main()
