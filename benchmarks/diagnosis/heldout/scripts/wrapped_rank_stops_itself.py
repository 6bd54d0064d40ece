"""Below a shell script, a rank's memory guard stops its own process "until there is room again"."""

import os
import resource
import signal
import time

import torch
import torch.distributed as dist

hoard = []


def guard(limit_kib: int) -> None:
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > limit_kib:
        os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for step in range(1_000_000):
        activations = torch.randn(1000, 100)
        if rank == 2:
            hoard.append(activations)
        mean = activations.mean()
        dist.all_reduce(mean)
        guard(start + 16_000)
        time.sleep(0.1)
        print(f"{rank}: {step} {mean.item():.5f}", flush=True)


main()
