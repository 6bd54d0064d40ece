"""The first rank prints to a terminal on which somebody has pressed Control-S."""

import os
import threading
import time

import torch
import torch.distributed as dist


def person_at_the_terminal(master: int) -> None:
    threading.Thread(target=read_for_ever, args=(master,), daemon=True).start()
    time.sleep(4)
    os.write(master, b"\x13")


def read_for_ever(master: int) -> None:
    while os.read(master, 4096):
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        master, terminal = os.openpty()
        console = os.fdopen(terminal, "w", buffering=1)
        threading.Thread(target=person_at_the_terminal, args=(master,), daemon=True).start()
    for step in range(100_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", file=console)
        elif step % 20 == 0:
            print(rank, step, flush=True)
        time.sleep(0.1)


main()
