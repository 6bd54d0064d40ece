"""Logging at random steps, with a collective inside and a seed of its own on each rank."""

import random
import time

import torch
import torch.distributed as dist


def log(loss: torch.Tensor, step: int) -> None:
    values = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(values, loss)
    print(f"rank {dist.get_rank()} step {step}: {[round(value.item(), 2) for value in values]}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(rank)
    for step in range(1, 100_000):
        gradient = torch.randn(200_000)
        dist.all_reduce(gradient)
        loss = gradient.mean().reshape(1)
        time.sleep(0.25)
        if random.random() < 0.02:
            log(loss, step)
        if rank == 0 and step % 5 == 0:
            print(f"step {step}", flush=True)


main()
