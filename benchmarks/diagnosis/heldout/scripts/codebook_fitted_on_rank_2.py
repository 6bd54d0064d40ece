"""Rank 2 fits a codebook with k-means in NumPy, and the others wait for its broadcast."""

import time

import numpy as np
import torch
import torch.distributed as dist


def assign(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((points[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)


def fit(points: np.ndarray, codes: int, end: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.choice(points, codes, replace=False)
    while time.monotonic() < end:
        nearest = assign(points, centres)
        for code in range(codes):
            if (nearest == code).any():
                centres[code] = points[nearest == code].mean(0)
    return centres


dist.init_process_group("gloo")
codebook = torch.zeros(32, 8)
for epoch in range(2):
    for _ in range(25):
        latent = torch.randn(64, 8) - codebook.mean()
        dist.all_reduce(latent)
        time.sleep(0.1)
    print(f"[{dist.get_rank()}] epoch {epoch}", flush=True)
    if dist.get_rank() == 2 and epoch == 0:
        points = np.random.default_rng(1).normal(size=(4_000, 8)).astype(np.float32)
        codebook = torch.from_numpy(fit(points, 32, time.monotonic() + 11))
    dist.broadcast(codebook, src=2)
dist.destroy_process_group()
