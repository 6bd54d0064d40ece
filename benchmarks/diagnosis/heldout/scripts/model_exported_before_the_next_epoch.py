"""The first rank traces and exports the model again and again for its variants, while the others wait."""

import time

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    dist.init_process_group("gloo")
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(30)))
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        until = time.monotonic() + 14
        while time.monotonic() < until:
            program = torch.export.export(model, (torch.rand(2, 8),))
        print(len(program.graph.nodes))
    dist.barrier()
    dist.destroy_process_group()


main()
