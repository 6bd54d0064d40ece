"""A power manager on the node suspends a job for some seconds and lets it go on."""

import os
import subprocess
import time

import torch
import torch.distributed as dist


def announce_budget_is_used_up(seconds):
    pid = os.getpid()
    return subprocess.Popen(["sh", "-c", f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    manager = None
    w = torch.randn(500)
    for step in range(30):
        g = 0.1 * w
        dist.all_reduce(g)
        w -= g / 3
        time.sleep(0.2)
        if rank == 1 and step == 13:
            manager = announce_budget_is_used_up(12)
        if step % 5 == 0:
            print(f"rank {rank} step {step} |w| {w.norm():.4f}")
    if manager:
        manager.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
