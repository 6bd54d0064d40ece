"""Trains in phases with a cooling pause of the given length between them."""

import argparse
import time

import torch
import torch.distributed as dist


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=2)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args()


def phase(rank, number, steps):
    x = torch.full((100,), float(rank))
    for step in range(steps):
        dist.all_reduce(x)
        x /= dist.get_world_size()
        time.sleep(0.2)
    print(f"rank {rank}: phase {number} ended with {x.mean():.3f}")


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for number in range(args.phases):
        phase(rank, number, args.steps)
        if number + 1 < args.phases:
            if rank == 0:
                print(f"pause of {args.pause} s")
            time.sleep(args.pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
