"""Rank 0 lets a scheduler's pause pass: it waits in sigwait for the alarm at which its share begins again."""

import signal
import time

import torch
import torch.distributed as dist


class Share:
    """Of a machine that several jobs use in turns."""

    def __init__(self, steps: int, pause: float) -> None:
        self.steps, self.pause = steps, pause
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})

    def yield_machine(self) -> float:
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.pause)
        signal.sigwait({signal.SIGALRM})
        return time.monotonic() - start


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    share = Share(steps=38, pause=13.0)
    for step in range(1, 56):
        dist.all_reduce(torch.rand(7))
        time.sleep(0.1)
        if rank == 0 and step == share.steps:
            print(f"was away for {share.yield_machine():.1f} s", flush=True)
        if rank == 2 and step % 9 == 0:
            print("at", step, flush=True)
    dist.destroy_process_group()


main()
