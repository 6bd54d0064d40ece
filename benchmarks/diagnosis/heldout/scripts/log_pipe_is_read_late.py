"""Writes its records into a pipe whose reader is busy for some time."""

import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

READER = """
import sys, time
n = 0
for line in sys.stdin:
    n += 1
    if n == 30:
        time.sleep(14)  # rotates its files
print('reader saw', n, 'records')
"""


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reader = subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, text=True) if rank == 1 else None
    x = torch.rand(600)
    for step in range(60):
        dist.all_reduce(x)
        x = torch.sin(x)
        if reader:
            for _ in range(2):
                reader.stdin.write(json.dumps({"step": step, "x": x.tolist()}) + "\n")
                reader.stdin.flush()
        time.sleep(0.1)
        if step % 10 == 0 and rank == 0:
            print("step", step)
    if reader:
        reader.stdin.close()
        reader.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
