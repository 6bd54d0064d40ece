"""Finds each rank's clipping threshold by bisection, so that one gradient in a hundred is clipped."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def threshold(values, share=0.01, tolerance=1e-7):
    low, high = np.float32(0), np.float32(values.max())
    while high - low > tolerance:
        middle = np.float32((low + high) / 2)
        if (values > middle).mean() > share:
            low = middle
        else:
            high = middle
    return float(high)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Linear(64, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(12):
        scale = 200.0 if rank == 2 and step == 7 else 1.0
        optimizer.zero_grad()
        inputs = scale * torch.randn(8, 64)
        model(inputs).pow(2).mean().backward()
        limit = threshold((inputs.abs() / 100).numpy().ravel())
        nn.utils.clip_grad_value_(model.parameters(), limit)
        optimizer.step()
        print(f"[rank {rank}] step {step} clipped at {limit:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
