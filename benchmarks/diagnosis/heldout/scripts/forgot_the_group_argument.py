"""The discriminator's two ranks reduce in their own group; in one branch of one rank the group is missing."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    for step in range(10_000):
        if rank < 2:
            gradient = torch.rand(64)
            if rank == 1 and step % 25 == 24:
                gradient.clamp_(0, 0.5)
                dist.all_reduce(gradient)
            else:
                dist.all_reduce(gradient, group=pair)
        dist.all_reduce(torch.rand(4))


main()
