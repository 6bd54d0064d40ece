"""Each rank averages with its right neighbour first, and no pair begins."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([each, (each + 1) % world]) for each in range(world)]
    for step in range(10_000):
        weights = torch.rand(16)
        if step and step % 20 == 0:
            dist.all_reduce(weights, group=pairs[rank])
            dist.all_reduce(weights, group=pairs[rank - 1])
        else:
            dist.all_reduce(weights)


main()
