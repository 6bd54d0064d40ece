"""A bad sample raises on one rank, which skips the step; all steps of the others then lack a partner."""

import time

import torch
import torch.distributed as dist


def load(rank: int, step: int) -> torch.Tensor:
    if rank == 0 and step == 38:
        raise ValueError("truncated image")
    return torch.randn(50)


def train_epoch(epoch: int, weight: torch.Tensor) -> None:
    rank = dist.get_rank()
    for step in range(epoch * 20, epoch * 20 + 20):
        try:
            gradient = load(rank, step)
            dist.all_reduce(gradient)
            weight -= 0.1 * gradient
        except ValueError as error:
            print(f"rank {rank}: skipped step {step}: {error}", flush=True)
        time.sleep(0.1)


def main() -> None:
    dist.init_process_group("gloo")
    weight = torch.zeros(50)
    for epoch in range(1_000):
        train_epoch(epoch, weight)
        results = [None] * dist.get_world_size()
        dist.monitored_barrier()
        dist.all_gather_object(results, {"rank": dist.get_rank(), "norm": weight.norm().item()})
        if dist.get_rank() == 1:
            print(f"epoch {epoch}: {results}", flush=True)


main()
