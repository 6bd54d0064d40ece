"""Rank 0 serves parameters; its workers compute for a while between two pushes."""

import math
import time

import torch
import torch.distributed as dist


def serve(rounds: int) -> None:
    parameters = torch.zeros(20)
    gradient = torch.empty(20)
    for number in range(rounds):
        for _ in range(2):
            worker = dist.recv(gradient)
            parameters -= 0.1 * gradient
            dist.send(parameters, dst=worker)
        print(f"round {number}: {parameters.norm():.2f}", flush=True)


def simulate(seconds: float) -> float:
    end, total, n = time.monotonic() + seconds, 0.0, 0
    while time.monotonic() < end:
        n += 1
        total += math.sin(n)
        if n % 20_000 == 0:
            time.sleep(0.01)
    return total


def work(rounds: int) -> None:
    parameters = torch.zeros(20)
    for number in range(rounds):
        noise = simulate(13 if number == 12 else 0.2)
        dist.send(parameters + noise * 1e-9 + 1, dst=0)
        dist.recv(parameters, src=0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        serve(25)
    else:
        work(25)
    dist.barrier()
    dist.destroy_process_group()
