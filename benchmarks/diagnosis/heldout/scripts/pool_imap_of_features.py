"""Rank 1 makes features with `Pool.imap_unordered`; each takes two seconds."""

import multiprocessing
import time

import torch
import torch.distributed as dist


def features(number: int) -> float:
    end, total = time.monotonic() + 2, 0.0
    while time.monotonic() < end:
        total += sum(1 / (k + number) for k in range(1, 20_000))
        time.sleep(0.002)
    return total


def all_features() -> list[float]:
    results = []
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for value in pool.imap_unordered(features, range(12)):
            results.append(value)
    return results


class Loop:
    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()

    def run(self, name: str, steps: int) -> None:
        for step in range(steps):
            dist.all_reduce(torch.ones(12))
            time.sleep(0.1)
            if step % 10 == 0:
                print(f"rank {self.rank} {name} step {step}", flush=True)


if __name__ == "__main__":
    loop = Loop()
    loop.run("before", 30)
    if loop.rank == 1:
        print(len(all_features()), "features", flush=True)
    loop.run("after", 20)
    dist.destroy_process_group()
