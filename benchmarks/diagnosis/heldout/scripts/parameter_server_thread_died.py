"""Rank 0 serves parameters from a thread, which has died; its main thread waits for the end of the service."""

import threading
import time

import torch
import torch.distributed as dist

finished = threading.Event()


def serve(world: int) -> None:
    parameters = torch.zeros(50)
    pushes = {"count": 0}
    rates = dict.fromkeys(range(80), 1.0)
    while True:
        for worker in range(1, world):
            gradient = torch.empty(50)
            dist.recv(gradient, src=worker)
            rate = rates[pushes["count"]]
            pushes["count"] += 1
            parameters -= rate * gradient
            dist.send(parameters, dst=worker)
        if pushes["count"] >= 1_000_000:
            finished.set()


def work(rank: int) -> None:
    parameters = torch.zeros(50)
    for step in range(500_000):
        dist.send(torch.randn(50) + parameters, dst=0)
        dist.recv(parameters, src=0)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"worker {rank} step {step}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        threading.Thread(target=serve, args=(dist.get_world_size(),)).start()
        finished.wait()
    else:
        work(dist.get_rank())
