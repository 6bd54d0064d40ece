"""A sampling profiler interrupts rank 1 by timer signals a hundred times a second, during a long evaluation."""

import collections
import signal
import time

import torch
import torch.distributed as dist

lines: collections.Counter = collections.Counter()


def sample(number, frame) -> None:
    lines[frame.f_lineno] += 1


def evaluate(seconds: float) -> float:
    end = time.monotonic() + seconds
    total = 0.0
    while time.monotonic() < end:
        total += sum(i * 0.5 for i in range(2000))
        time.sleep(0.02)
    return total


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(40):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.03)
    if rank == 1:
        signal.signal(signal.SIGALRM, sample)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        print(evaluate(17), flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("hottest lines", lines.most_common(3), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
