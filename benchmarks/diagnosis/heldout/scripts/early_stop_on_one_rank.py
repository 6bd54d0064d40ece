"""Early stopping decided by each rank's own loss; the one that stops waits for the others at the end."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist


class EarlyStopping:
    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def __call__(self, loss: float) -> bool:
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience


def validation_loss(step: int, rank: int) -> float:
    return 1.0 / (1 + step) if rank != 2 else max(1.0 / (1 + step), 0.03)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    stop = EarlyStopping(patience=10)
    weight = torch.randn(1000)
    for step in range(100_000):
        dist.all_reduce(weight)
        weight /= dist.get_world_size()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if stop(validation_loss(step, rank)):
            print(f"rank {rank}: no better for {stop.patience} steps, stopping", flush=True)
            break
    dist.monitored_barrier(timeout=timedelta(minutes=30))
    dist.destroy_process_group()


main()
