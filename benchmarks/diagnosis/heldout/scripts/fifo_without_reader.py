"""Metrics go to a named pipe; the dashboard that read it is gone."""

import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist

pipe = os.path.join(tempfile.mkdtemp(prefix="metrics-"), "pipe")


def dashboard() -> None:
    for _ in range(3):
        with open(pipe) as file:
            file.read()


def report(step: int, loss: float) -> None:
    with open(pipe, "w") as file:
        file.write(f"{step},{loss}\n")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 2:
        os.mkfifo(pipe)
        threading.Thread(target=dashboard, daemon=True).start()
    loss = torch.ones(1)
    for step in range(1, 100_000):
        dist.all_reduce(loss, op=dist.ReduceOp.MAX)
        loss *= 0.999
        time.sleep(0.1)
        if step % 10 == 0:
            if rank == 2:
                report(step, loss.item())
            else:
                print(f"rank {rank}: step {step}", flush=True)


main()
