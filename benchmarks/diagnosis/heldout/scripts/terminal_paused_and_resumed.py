"""Somebody presses Control-S on the terminal to read, and Control-Q some time later."""

import os
import threading
import time

import torch
import torch.distributed as dist


def read_for_ever(master: int) -> None:
    while os.read(master, 4096):
        pass


def person(master: int) -> None:
    time.sleep(3)
    os.write(master, b"\x13")
    time.sleep(17)
    os.write(master, b"\x11")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        master, terminal = os.openpty()
        console = os.fdopen(terminal, "w", buffering=1)
        threading.Thread(target=read_for_ever, args=(master,), daemon=True).start()
        threading.Thread(target=person, args=(master,), daemon=True).start()
    for step in range(70):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        if rank == 1:
            print(f"step {step} loss {loss.item():.3f}", file=console)
        elif step % 10 == 0:
            print(rank, step, flush=True)
        time.sleep(0.1)
    dist.destroy_process_group()


main()
