"""The rank's work is in a child process that the parent joins; the child of rank 0 evaluates for a while."""

import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def evaluate(seconds: float) -> float:
    end, medians = time.monotonic() + seconds, []
    while time.monotonic() < end:
        medians.append(statistics.median(torch.randn(2_000).tolist()))
    return statistics.fmean(medians)


def train() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 56):
        dist.all_reduce(torch.randn(16))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if step == 30 and rank == 0:
            print(f"median {evaluate(14):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    child = mp.get_context("fork").Process(target=train)
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
