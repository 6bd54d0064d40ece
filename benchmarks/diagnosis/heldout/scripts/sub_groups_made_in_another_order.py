"""Makes a process group for each pair of neighbours once the model is warm."""

import time

import torch
import torch.distributed as dist


def warm_up(model, steps):
    for step in range(steps):
        g = torch.randn(64)
        dist.all_reduce(g)
        model.add_(g, alpha=-0.01)
        time.sleep(0.2)


def neighbours(world, first):
    pairs = [(r, r + 1) for r in range(world - 1)]
    # the own pair first
    return sorted(pairs, key=lambda pair: pair[0] != first)


def make_groups(rank, world):
    groups = {}
    for pair in neighbours(world, first=1 if rank == 2 else 0):
        group = dist.new_group(list(pair))
        if rank in pair:
            groups[pair] = group
            dist.barrier(group=group)
    return groups


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.zeros(64)
    warm_up(model, 15)
    print(f"rank {rank} is warm")
    groups = make_groups(rank, world)
    for step in range(200):
        for pair, group in groups.items():
            dist.all_reduce(model, group=group)
            model /= 2
        time.sleep(0.2)
        if step % 10 == 0:
            print("rank", rank, "step", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
