"""An external preprocessing program is stopped (Ctrl-Z in its terminal, a debugger), and the rank waits for it."""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

PROGRAM = "import time\nfor chunk in range(20): time.sleep(0.1)"


def preprocess(epoch: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", PROGRAM])
    if epoch == 2:
        time.sleep(1)
        os.kill(child.pid, signal.SIGSTOP)
    child.wait()


def main() -> None:
    dist.init_process_group("gloo")
    for epoch in range(100):
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: preprocessing", flush=True)
            preprocess(epoch)
        dist.barrier()
        for _ in range(5):
            dist.all_reduce(torch.ones(10))
            time.sleep(0.1)


main()
