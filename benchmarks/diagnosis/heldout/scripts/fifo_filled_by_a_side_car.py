"""Rank 0 reads a new validation set from a named pipe that a side-car process fills block by block."""

import multiprocessing
import os
import tempfile
import time

import torch
import torch.distributed as dist


def fill(path: str, blocks: int) -> None:
    with open(path, "wb", buffering=0) as pipe:
        for block in range(blocks):
            time.sleep(1.2)
            pipe.write(bytes([block]) * 1024)


def read(blocks: int) -> torch.Tensor:
    path = os.path.join(tempfile.mkdtemp(), "validation")
    os.mkfifo(path)
    side_car = multiprocessing.get_context("fork").Process(target=fill, args=(path, blocks))
    side_car.start()
    with open(path, "rb") as pipe:
        data = bytearray(pipe.read())
    side_car.join()
    return torch.frombuffer(data, dtype=torch.uint8).float()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for step in range(60):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.08)
        if dist.get_rank() == 0:
            if step % 10 == 0:
                print(f"{step}: {loss.item():.2f}", flush=True)
            if step == 42:
                print("mean", read(11).mean().item(), flush=True)
    dist.destroy_process_group()
