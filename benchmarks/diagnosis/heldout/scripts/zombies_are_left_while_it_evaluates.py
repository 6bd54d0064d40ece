"""A rank has not collected its ended children, and evaluates for eighteen seconds: neither is a fault."""

import subprocess
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 2:
        thumbnails = [subprocess.Popen(["true"]) for _ in range(5)]
        until, total = time.monotonic() + 18, 0
        while time.monotonic() < until:
            total += sum(number * number % 7 for number in range(20_000))
        for each in thumbnails:
            each.wait()
    dist.barrier()
    dist.destroy_process_group()


main()
