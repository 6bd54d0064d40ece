"""The simulator child is terminated and saves its world first, in its handler of SIGTERM."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

SIMULATOR = """
import signal, sys, time
def save(*args):
    for part in range(16):
        time.sleep(1)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.5)
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    child = None
    if rank == 0:
        child = subprocess.Popen([sys.executable, "-c", SIMULATOR], stdout=subprocess.PIPE)
        child.stdout.readline()
    for _ in range(50):
        dist.all_reduce(torch.rand(2))
        time.sleep(0.05)
    if child:
        child.terminate()
        print("simulator ended with", child.wait(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
