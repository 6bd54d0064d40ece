"""A rank whose loss is not finite leaves out the step's all-reduce, and goes on to a gathering of statistics."""

import math
import time

import torch
import torch.distributed as dist


class Run:
    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.weight = torch.randn(20, 1, requires_grad=True)

    def loss(self, step: int) -> torch.Tensor:
        target = math.nan if (self.rank, step) == (2, 30) else 1.0
        return (torch.randn(5, 20) @ self.weight - target).square().mean()

    def update(self, loss: torch.Tensor) -> None:
        (gradient,) = torch.autograd.grad(loss, self.weight)
        dist.all_reduce(gradient)
        with torch.no_grad():
            self.weight -= 1e-3 * gradient

    def statistics(self, value: float) -> list:
        gathered: list = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, {"loss": value})
        return gathered

    def go(self) -> None:
        step = 0
        while step := step + 1:
            loss = self.loss(step)
            if loss.isfinite():
                self.update(loss)
            gathered = self.statistics(loss.item())
            if self.rank == 0:
                print(step, gathered, flush=True)
            time.sleep(0.1)


Run().go()
