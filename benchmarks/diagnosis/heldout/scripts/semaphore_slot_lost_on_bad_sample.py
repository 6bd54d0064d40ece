"""Limits the number of decoded samples in memory by a semaphore."""

import random
import threading
import time

import torch
import torch.distributed as dist

slots = threading.BoundedSemaphore(4)


def decode(index, broken):
    slots.acquire()
    if broken(index):
        raise ValueError(f"sample {index} is broken")
    t = torch.full((64,), float(index))
    slots.release()
    return t


def load_batch(rng, broken):
    rows = []
    while len(rows) < 8:
        try:
            rows.append(decode(rng.randrange(10000), broken))
        except ValueError as e:
            print("skipping:", e)
    return torch.stack(rows)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = random.Random(rank)
    state = {"step": 0}
    broken = lambda i: rank == 1 and state["step"] > 12 and i % 5 == 0
    w = torch.zeros(64)
    for step in range(300):
        state["step"] = step
        batch = load_batch(rng, broken)
        grad = (batch - w).mean(0)
        dist.all_reduce(grad)
        w += 0.01 * grad
        time.sleep(0.2)
        if step % 4 == 0 and rank == 0:
            print("step", step, float(w.mean()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
