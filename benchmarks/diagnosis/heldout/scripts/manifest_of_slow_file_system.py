"""Rank 0 lists a folder of many files, and the file system lets each directory wait."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def manifest(root: str) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        time.sleep(0.25)
        for name in names:
            total += os.stat(os.path.join(folder, name)).st_size
    return total


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    size = torch.zeros(1)
    if rank == 0:
        with tempfile.TemporaryDirectory() as root:
            for number in range(70):
                os.mkdir(os.path.join(root, str(number)))
                for part in range(20):
                    with open(os.path.join(root, str(number), f"{part}.txt"), "w") as file:
                        file.write("x" * part)
            size[0] = manifest(root)
    dist.broadcast(size, 0)
    print(rank, size.item(), flush=True)
    for step in range(50):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.02)
    dist.destroy_process_group()


main()
