"""The rank's work is in a child process; in one of them the learning-rate search never ends."""

import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def line_search(loss: float, slope: float) -> float:
    rate = 1.0
    while loss - rate * slope != loss:  # until the step makes no difference
        rate = rate * 0.5 if slope else rate
    return rate


def train() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(10_000):
        gradient = torch.randn(4)
        dist.all_reduce(gradient)
        slope = float("nan") if rank == 2 and step == 30 else float(gradient.norm())
        rate = line_search(1.0, slope)
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} rate {rate:.1e}", flush=True)


if __name__ == "__main__":
    child = mp.get_context("fork").Process(target=train)
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
