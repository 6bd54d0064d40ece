"""Ranks append to an index under a lock; one of them, inside it, writes to a named pipe that is full."""

import fcntl
import os
import tempfile
import time

import torch
import torch.distributed as dist


def announce(pipe: int, step: int) -> None:
    os.write(pipe, f"{step:>09999}\n".encode())


def append(index: str, line: str, pipe: int | None, step: int) -> None:
    with open(index, "a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        file.write(line)
        file.flush()
        if pipe is not None:
            announce(pipe, step)


dist.init_process_group("gloo")
rank = dist.get_rank()
where = [tempfile.mkdtemp()] if rank == 0 else [None]
dist.broadcast_object_list(where, src=0)
pipe = None
if rank == 1:
    os.mkfifo(f"{where[0]}/pipe")
    reader = os.open(f"{where[0]}/pipe", os.O_RDONLY | os.O_NONBLOCK)
    pipe = os.open(f"{where[0]}/pipe", os.O_WRONLY)
for step in range(100_000):
    loss = torch.rand(1)
    dist.all_reduce(loss)
    time.sleep(0.1 if rank == 1 else 0.15)
    if step % 5 == 0:
        append(f"{where[0]}/index", f"{rank} {step} {loss.item()}\n", pipe, step)
        print(f"{rank}: {step}", flush=True)
