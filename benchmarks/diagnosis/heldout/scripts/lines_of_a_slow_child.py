"""Rank 2 reads the progress of an external converter line by line, a line every three seconds."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

CONVERTER = """
import time
for part in range(5):
    time.sleep(3)
    print("converted part", part, flush=True)
"""


def convert() -> int:
    with subprocess.Popen([sys.executable, "-c", CONVERTER], stdout=subprocess.PIPE, text=True) as process:
        return sum(1 for _ in process.stdout)


def train(steps: int) -> None:
    for step in range(steps):
        dist.all_reduce(torch.zeros(100))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    train(30)
    if dist.get_rank() == 2:
        print(f"{convert()} parts", flush=True)
    dist.monitored_barrier()
    train(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
