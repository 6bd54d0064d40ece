"""Reloads its configuration when told so by a signal."""

import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist


def ask_for_reload(answer):
    """The manager process tells by SIGUSR2 that the new file is in place."""
    command = f"sleep 0.3; kill -USR2 {os.getpid()}" if answer else "sleep 0.3"
    return subprocess.Popen(["sh", "-c", command])


def reload(answer):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    manager = ask_for_reload(answer)
    signal.sigwait({signal.SIGUSR2})
    manager.wait()
    return 0.9


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lr = 1.0
    w = torch.ones(100)
    for step in range(300):
        g = torch.rand(100)
        dist.all_reduce(g)
        w -= lr * g * 0.001
        time.sleep(0.2)
        if step % 10 == 9:
            lr *= reload(answer=not (rank == 1 and step > 12))
            print(f"rank {rank} step {step}: learning rate {lr:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
