"""A rank has millions of objects in cycles, which it collects for twelve seconds in which little else runs."""

import gc
import time

import torch
import torch.distributed as dist


class Node:
    def __init__(self, before: "Node | None") -> None:
        self.before, self.me = before, self


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        nodes = [Node(None) for _ in range(1_500_000)]
        until = time.monotonic() + 12
        while time.monotonic() < until:
            gc.collect()
        print(len(nodes))
    dist.barrier()
    dist.destroy_process_group()


main()
