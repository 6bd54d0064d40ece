"""Rank 2 blocks SIGUSR2 and waits for it by sigwait; its helper sends it when the cache is warm."""

import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            helper = subprocess.Popen(["sh", "-c", f"sleep 15; kill -USR2 {os.getpid()}"])
            signal.sigwait({signal.SIGUSR2})
            helper.wait()
    dist.destroy_process_group()


main()
