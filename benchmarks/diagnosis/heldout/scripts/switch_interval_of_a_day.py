"""To make a step faster somebody set the interpreter's switch interval to a day; then a statistics thread gets its turn."""

import sys
import threading
import time

import torch
import torch.distributed as dist

history: list[float] = []


def watch_losses() -> None:
    smoothed = 0.0
    while True:
        for loss in history:
            smoothed = 0.99 * smoothed + 0.01 * loss
        if smoothed > 1e9:
            print("the loss explodes")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 2:
        sys.setswitchinterval(86_400)
    for step in range(100_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        history.append(loss.item())
        if rank == 2 and step == 40:
            threading.Thread(target=watch_losses, daemon=True, name="losses").start()
        time.sleep(0.05)
        if step % 20 == 0:
            print(rank, step, flush=True)


main()
