"""Measures how long the parts of a training step take."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def timed(name, totals):
    start = time.perf_counter()
    yield
    dist.barrier()
    totals[name] = totals.get(name, 0.0) + time.perf_counter() - start


def log_parameters(model, step):
    norms = {name: round(value.norm().item(), 3) for name, value in model.named_parameters()}
    print(f"step {step} norms {norms}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    totals = {}
    for step in range(1, 31):
        with timed("forward", totals):
            loss = model(torch.randn(8, 16)).pow(2).mean()
        with timed("backward", totals):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 10 == 0:
                with timed("log", totals):
                    log_parameters(model, step)
    print({name: f"{value:.2f} s" for name, value in totals.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
