"""A rank stops at a breakpoint; the person at the terminal looks, and lets it go on."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(20):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        breakpoint()
    dist.barrier()
    dist.destroy_process_group()


main()
