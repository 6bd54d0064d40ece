"""A helper waits for SIGUSR1 to start; the rank sent it while the helper still ignored it, and waits for the helper."""

import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

HELPER = """
import signal, time
time.sleep(1.5)   # reads its tables
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.pause()
print("indexed", flush=True)
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 2 and step == 30:
            helper = subprocess.Popen([sys.executable, "-c", HELPER], stdout=subprocess.PIPE)
            time.sleep(0.5)
            helper.send_signal(signal.SIGUSR1)
            print(helper.stdout.read(), helper.wait(), flush=True)


main()
