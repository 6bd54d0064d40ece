"""One rank never comes to `init_process_group`: it waits for a file lock in its download of the model."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

HOLD = """
import fcntl, sys, time
fcntl.flock(1, fcntl.LOCK_EX)
sys.stderr.write("holding")
sys.stderr.close()
time.sleep(7200)
"""


def download(cache: str) -> None:
    with open(os.path.join(cache, "model.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        time.sleep(0.5)


def main() -> None:
    cache = tempfile.mkdtemp(prefix="hub-")
    if os.environ["RANK"] == "2":  # another program on this machine, in the same cache
        with open(os.path.join(cache, "model.lock"), "w") as lock:
            other = subprocess.Popen([sys.executable, "-c", HOLD], stdout=lock, stderr=subprocess.PIPE)
        other.stderr.read()
    download(cache)
    print(f"rank {os.environ['RANK']}: model is there", flush=True)
    dist.init_process_group("gloo")
    for step in range(100_000):
        dist.all_reduce(torch.ones(10))
        time.sleep(0.1)
        if step % 10 == 0:
            print("step", step, flush=True)


main()
