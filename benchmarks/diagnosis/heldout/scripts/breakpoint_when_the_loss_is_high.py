"""A breakpoint for bad losses was left in the code; the terminal is silent."""

import torch
import torch.distributed as dist


def check(loss: torch.Tensor, step: int) -> None:
    if loss.item() > 5:
        breakpoint()


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10_000):
        loss = torch.rand(1)
        if dist.get_rank() == 2 and step == 30:
            loss *= 1e6
        check(loss, step)
        dist.all_reduce(loss)


main()
