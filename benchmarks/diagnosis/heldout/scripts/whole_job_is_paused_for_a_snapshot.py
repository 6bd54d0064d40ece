"""Someone takes a snapshot of the machine: all ranks are stopped for ten seconds, and go on."""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

SNAPSHOT = """
import os, signal, sys, time
ranks = [int(word) for word in sys.argv[1:]]
time.sleep(1)
for each in ranks:
    os.kill(each, signal.SIGSTOP)
time.sleep(10)
for each in ranks:
    os.kill(each, signal.SIGCONT)
"""


def main() -> None:
    dist.init_process_group("gloo")
    ranks = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(ranks, torch.tensor([os.getpid()]))
    if dist.get_rank() == 0:
        subprocess.Popen([sys.executable, "-c", SNAPSHOT, *(str(int(each)) for each in ranks)], start_new_session=True)
    for step in range(60):
        time.sleep(0.1)
        dist.all_reduce(torch.rand(16))
    dist.destroy_process_group()


main()
