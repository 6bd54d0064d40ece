"""Rank 0 draws a page of figures after the epoch, with matplotlib, while the others wait in their first all-reduce."""

import io
import time

import numpy as np
import torch
import torch.distributed as dist


def draw(seconds: float) -> int:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        figure, axes = plt.subplots(3, 3, figsize=(12, 12))
        for axis in axes.flat:
            axis.scatter(np.random.rand(2000), np.random.rand(2000), c=np.random.rand(2000), s=8)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        plt.close(figure)
        size += len(buffer.getvalue())
    return size


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(2):
        for _ in range(40):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.03)
        if rank == 0 and epoch == 0:
            print("figures:", draw(14), "bytes", flush=True)
    dist.destroy_process_group()


main()
