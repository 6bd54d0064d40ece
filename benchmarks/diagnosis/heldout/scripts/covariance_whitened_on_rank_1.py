"""Whitens the features in the middle of the training; the matrix is computed by one rank in NumPy."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def inverse_square_root(matrix, iterations):
    """The iteration of Newton and Schulz, in float64."""
    scale = np.linalg.norm(matrix)
    y, z = matrix / scale, np.eye(len(matrix))
    for _ in range(iterations):
        step = 0.5 * (3 * np.eye(len(matrix)) - z @ y)
        y, z = y @ step, step @ z
    return z / np.sqrt(scale)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    whitening = torch.eye(64, dtype=torch.float64)
    for step in range(40):
        if step == 20:
            if rank == 1:
                features = np.random.default_rng(0).normal(size=(4000, 2048))
                full = inverse_square_root(features.T @ features / 4000, iterations=16)
                whitening.copy_(torch.from_numpy(full[:64, :64]))
            dist.broadcast(whitening, src=1)
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64) @ whitening.float()).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
