"""Rank 0 samples a sensor at each tick of an interval timer, and pauses for the signal in between."""

import signal
import time

import torch
import torch.distributed as dist

samples: list = []


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            signal.signal(signal.SIGALRM, lambda *_: samples.append(time.time()))
            signal.setitimer(signal.ITIMER_REAL, 2.5, 2.5)
            while len(samples) < 6:
                signal.pause()
            signal.setitimer(signal.ITIMER_REAL, 0)
    dist.destroy_process_group()


main()
