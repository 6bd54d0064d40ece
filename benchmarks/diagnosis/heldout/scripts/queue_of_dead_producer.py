"""Batches come from a producer thread through a queue; the producer met a broken record."""

import queue
import threading
import time

import numpy as np
import torch
import torch.distributed as dist


def read_records(rank: int):
    generator = np.random.default_rng(rank)
    for number in range(1_000_000):
        line = ",".join(f"{value:.4f}" for value in generator.normal(size=12))
        yield "12,,x" if rank == 1 and number == 300 else line


def produce(rank: int, batches: "queue.Queue[torch.Tensor]") -> None:
    rows = []
    for line in read_records(rank):
        rows.append([float(word) for word in line.split(",")])
        if len(rows) == 8:
            batches.put(torch.tensor(rows))
            rows = []


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=4)
    threading.Thread(target=produce, args=(rank, batches), daemon=True).start()
    mean = torch.zeros(12)
    for step in range(100_000):
        batch = batches.get()
        mean += batch.mean(0)
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)


main()
