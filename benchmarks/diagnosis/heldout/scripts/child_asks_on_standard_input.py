"""A compiler driver that reads its program from a pipe which the parent never closes."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist


def build_kernel(source: str) -> None:
    compiler = subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, text=True)
    compiler.stdin.write(source)
    compiler.stdin.flush()
    if compiler.wait() != 0:
        raise RuntimeError("the build failed")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.randn(128)
    for step in range(100_000):
        dist.all_reduce(x)
        x = x / x.norm()
        time.sleep(0.1)
        if step == 35 and rank == 1:  # the shape changed
            build_kernel("print('compiled')\n")
        if step % 10 == 0:
            print(f"r{rank} s{step}", flush=True)


main()
