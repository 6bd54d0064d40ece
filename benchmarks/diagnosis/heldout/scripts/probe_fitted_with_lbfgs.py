"""Rank 1 fits a linear probe with L-BFGS, thousands of evaluations in one step of the optimizer."""

import time

import torch
import torch.distributed as dist


def fit(seconds: float) -> float:
    x = torch.randn(4000, 64)
    y = torch.sin(x @ torch.randn(64))
    loss = torch.zeros(())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        w = torch.zeros(64, requires_grad=True)
        optimizer = torch.optim.LBFGS([w], max_iter=300, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            value = (torch.tanh(x @ w) - y).square().mean()
            value.backward()
            return value

        loss = optimizer.step(closure)
    return float(loss)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(80):
        if step == 40 and rank == 1:
            print("probe:", fit(15), flush=True)
        dist.all_reduce(torch.rand(3))
        time.sleep(0.02)
    dist.destroy_process_group()


main()
