"""A lock made with mkdir; an exception left it behind, and the same rank waits for it at the next save."""

import os
import tempfile
import time
from contextlib import suppress

import torch
import torch.distributed as dist


def lock(path: str) -> None:
    while True:
        try:
            os.mkdir(path)
        except FileExistsError:
            time.sleep(0.1)
        else:
            return


def save(folder: str, tensor: torch.Tensor, step: int) -> None:
    lock(f"{folder}/.lock")
    if tensor.norm() < 0.9:
        raise ValueError("refusing to save weights that collapsed")
    torch.save(tensor, f"{folder}/{step}.pt")
    os.rmdir(f"{folder}/.lock")


def main() -> None:
    dist.init_process_group("gloo")
    folder = tempfile.mkdtemp()
    weights = torch.ones(100)
    for step in range(1_000_000):
        weights.mul_(0.93)
        dist.all_reduce(weights, op=dist.ReduceOp.MAX)
        time.sleep(0.1)
        if dist.get_rank() == 0 and step % 6 == 5:
            with suppress(ValueError):
                save(folder, weights, step)
            print("saved at", step, flush=True)


main()
