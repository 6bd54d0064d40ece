"""Reads the next stage's settings from a named pipe that a controller writes."""

import multiprocessing as mp
import os
import tempfile
import time

import torch
import torch.distributed as dist


def controller(path, delays):
    for n, delay in enumerate(delays):
        time.sleep(delay)
        with open(path, "w") as f:
            f.write(f"{0.1 / (n + 1)}\n")
        time.sleep(0.5)


def next_setting(path):
    with open(path) as f:
        return float(f.read())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.mkdtemp(), "settings")
    os.mkfifo(path)
    delays = (0, 0.5, 16, 1)
    p = mp.get_context("fork").Process(target=controller, args=(path, delays), daemon=True)
    p.start()
    w = torch.ones(10)
    for stage in range(4):
        lr = next_setting(path)
        print(f"rank {rank} stage {stage} learning rate {lr:.3f}")
        for _ in range(8):
            g = torch.rand(10)
            dist.all_reduce(g)
            w -= lr * g
            time.sleep(0.2)
    p.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
