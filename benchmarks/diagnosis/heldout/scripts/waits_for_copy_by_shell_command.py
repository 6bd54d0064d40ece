"""Copies its data to a local disk by a shell command, on every rank."""

import os
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist

COPY = """
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    head -c 100000 /dev/urandom > "$TARGET/part$i"
    sleep 1
done
"""


def stage_in():
    target = tempfile.mkdtemp()
    subprocess.check_call(["bash", "-c", COPY], env={**os.environ, "TARGET": target})
    return sorted(os.listdir(target))


def train(steps, rank):
    w = torch.zeros(100)
    for step in range(steps):
        g = torch.rand(100)
        dist.all_reduce(g)
        w += g
        time.sleep(0.2)
    print(f"rank {rank} trained {steps} steps, w {w.mean():.3f}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train(12, rank)
    files = stage_in()
    print(f"rank {rank} has {len(files)} files")
    train(12, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
