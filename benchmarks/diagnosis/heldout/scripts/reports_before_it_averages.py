"""At the end of an epoch one rank has a newer version of the loop, which reports before it averages."""

import torch
import torch.distributed as dist


def report(epoch: int) -> None:
    lines = [None] * dist.get_world_size()
    dist.all_gather_object(lines, {"epoch": epoch, "rank": dist.get_rank()})


def average(loss: torch.Tensor) -> None:
    dist.all_reduce(loss)


def main() -> None:
    dist.init_process_group("gloo")
    newer = dist.get_rank() == 2
    for epoch in range(1000):
        for step in range(10):
            dist.all_reduce(torch.rand(1000))
        if newer and epoch >= 2:
            report(epoch)
            average(torch.rand(1000))
        else:
            average(torch.rand(1000))
            report(epoch)


main()
