"""The writer of rank 2 waits until there is room under its quota; the cleaner removes old checkpoints after a while."""

import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist

QUOTA = 3_000_000


def used(folder: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def clean_later(folder: str) -> None:
    time.sleep(19)
    for entry in list(os.scandir(folder))[:3]:
        os.unlink(entry.path)


def save(folder: str, step: int) -> None:
    data = b"0" * 800_000
    while used(folder) + len(data) > QUOTA:
        print("no room for step", step, flush=True)
        time.sleep(5)
    with open(os.path.join(folder, f"{step}.pt"), "wb") as file:
        file.write(data)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        if rank == 2:
            threading.Thread(target=clean_later, args=(folder,), daemon=True).start()
        for step in range(1, 60):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.05)
            if rank == 2 and step % 10 == 0:
                save(folder, step)
    dist.destroy_process_group()


main()
