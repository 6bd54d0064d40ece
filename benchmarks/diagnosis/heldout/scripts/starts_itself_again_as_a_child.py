"""The program starts itself again with other settings of its memory; in one rank's child a semaphore runs out."""

import os
import subprocess
import sys
import threading

import torch
import torch.distributed as dist


def train() -> None:
    dist.init_process_group("gloo")
    slots = threading.Semaphore(8)
    for step in range(10_000):
        slots.acquire()
        batch = torch.rand(16)
        if dist.get_rank() == 2 and step % 3 == 2:
            batch = batch[:0]  # filtered out, and the slot is not given back
        else:
            slots.release()
        dist.all_reduce(torch.rand(4) + len(batch))


if os.environ.get("MALLOC_ARENA_MAX"):
    train()
else:
    sys.exit(subprocess.run([sys.executable, __file__], env={**os.environ, "MALLOC_ARENA_MAX": "2"}).returncode)
