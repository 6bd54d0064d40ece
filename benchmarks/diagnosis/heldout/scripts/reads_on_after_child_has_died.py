"""The rank reads lines until the simulator says that it is ready; the simulator died, and readline gives empty lines."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

SIMULATOR = "import sys, time; print('loading'); time.sleep(0.5); sys.exit({code} or print('ready') or 0)"


def start(code: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", SIMULATOR.format(code=code)], stdout=subprocess.PIPE, text=True)
    while True:
        line = child.stdout.readline()
        if line.strip() == "ready":
            break
    child.wait()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for episode in range(1000):
        for _ in range(20):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.05)
        if rank == 1:
            start(code=3 if episode == 4 else 0)
        print(f"{rank}: episode {episode}", flush=True)


main()
