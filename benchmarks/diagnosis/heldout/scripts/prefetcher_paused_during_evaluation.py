"""A rank pauses its prefetching child while it evaluates for fifteen seconds, and lets it go on afterwards."""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

PREFETCH = "import time\nwhile True:\n    print('.', flush=True)\n    time.sleep(0.1)\n"


def main() -> None:
    dist.init_process_group("gloo")
    child = subprocess.Popen([sys.executable, "-c", PREFETCH], stdout=subprocess.PIPE)
    for step in range(20):
        child.stdout.readline()
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        os.kill(child.pid, signal.SIGSTOP)
        until, total = time.monotonic() + 15, torch.zeros(1)
        while time.monotonic() < until:
            total += torch.rand(1000).median()
        os.kill(child.pid, signal.SIGCONT)
    for step in range(20):
        child.stdout.readline()
        dist.all_reduce(torch.rand(16))
    child.kill()
    child.wait()
    dist.destroy_process_group()


main()
