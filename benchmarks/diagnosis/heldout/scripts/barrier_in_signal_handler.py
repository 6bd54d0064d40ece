"""A preemption notice came to one rank only; its handler saves a checkpoint, with a barrier."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist

weight = torch.zeros(100)


def save_and_wait(number: int, frame: object) -> None:
    print(f"rank {dist.get_rank()}: signal {number}, saving", flush=True)
    dist.monitored_barrier()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, save_and_wait)
    if rank == 2:
        threading.Timer(5.0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    for step in range(100_000):
        gradient = torch.randn(100)
        dist.all_reduce(gradient)
        weight.sub_(gradient, alpha=0.01)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)


main()
