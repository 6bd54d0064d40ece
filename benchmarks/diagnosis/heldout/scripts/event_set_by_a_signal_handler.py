"""Rank 2 waits for an event, which the handler of a signal sets; an operator's script sends it after a while."""

import os
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    resume = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: resume.set())
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            subprocess.run(["setsid", "-f", "sh", "-c", f"sleep 15; kill -USR1 {os.getpid()}"], check=True)
            resume.wait()
    dist.destroy_process_group()


main()
