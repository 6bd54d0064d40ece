"""A rank saved its state at a notice of the scheduler, and pauses until SIGCONT's handler says that it may go on."""

import signal
import time

import torch
import torch.distributed as dist

noticed = False


def notice(number: int, frame: object) -> None:
    global noticed
    noticed = True


def go_on(number: int, frame: object) -> None:
    global noticed
    noticed = False


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGALRM, notice)
    signal.signal(signal.SIGCONT, go_on)
    if rank == 0:
        signal.alarm(4)  # plays the scheduler
    for step in range(1_000_000):
        value = torch.rand(3)
        dist.all_reduce(value)
        while noticed:
            signal.pause()
        time.sleep(0.1)
        if rank == 1 and step % 5 == 0:
            print(step, value.tolist(), flush=True)


main()
