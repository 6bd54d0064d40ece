"""Lets an operator pause a job by a file."""

import os
import signal
import tempfile
import time

import torch
import torch.distributed as dist


def maybe_pause(folder):
    if os.path.exists(os.path.join(folder, "pause")):
        print("pausing on request")
        os.kill(os.getpid(), signal.SIGSTOP)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    params = torch.randn(512)
    for step in range(1000):
        grad = params * 0.1
        dist.all_reduce(grad)
        params -= grad / 3
        time.sleep(0.1)
        if step % 20 == 0:
            print(f"rank {rank} step {step} |p| = {params.norm():.5f}")
        if step == 35 and rank == 1:
            open(os.path.join(folder, "pause"), "w").close()
        maybe_pause(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
