"""Averages gradients by hand while a thread keeps running statistics."""

import os
import threading
import time

import torch
import torch.distributed as dist

stats_lock = threading.Lock()
stats = {"seen": 0, "bad": None}


def collect(rank):
    for i in range(1000):
        time.sleep(0.25)
        stats_lock.acquire()
        stats["seen"] += 1
        if rank == 2 and i == 14:
            stats["bad"] = stats["samples"][i]
        stats_lock.release()


def step(weights, rank):
    grad = torch.randn_like(weights) * 0.1
    dist.all_reduce(grad)
    weights -= 0.1 * grad / dist.get_world_size()
    with stats_lock:
        stats["norm"] = float(weights.norm())


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    threading.Thread(target=collect, args=(rank,), daemon=True).start()
    weights = torch.zeros(1000)
    for it in range(2000):
        step(weights, rank)
        time.sleep(0.1)
        if it % 10 == 0 and rank == 0:
            print("iteration", it, "norm", stats["norm"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
