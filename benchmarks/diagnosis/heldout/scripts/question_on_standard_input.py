"""Rank 0 asks whether it may overwrite a checkpoint; nobody sits at standard input."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


def save(path: Path, weight: torch.Tensor) -> None:
    if path.exists():
        answer = input(f"{path} exists. Overwrite? [y/N] ")
        if answer.strip().lower() != "y":
            return
    torch.save(weight, path)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.mkdtemp()) / "last.pt"
    weight = torch.randn(100)
    for epoch in range(1_000):
        for _ in range(20):
            dist.all_reduce(weight)
            weight /= 3
            time.sleep(0.1)
        if rank == 0:
            print("epoch", epoch, flush=True)
            save(path, weight)
        dist.barrier()


if __name__ == "__main__":
    main()
