"""A rank is told to end. Its handler asks the loop to stop and waits until it has: in the loop's own thread."""

import os
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist


class GracefulStop:
    def __init__(self) -> None:
        self.asked = threading.Event()
        self.saved = threading.Event()
        signal.signal(signal.SIGTERM, self.on_term)

    def on_term(self, signum, frame) -> None:
        print("SIGTERM: waiting for the last checkpoint", flush=True)
        self.asked.set()
        self.saved.wait()
        raise SystemExit(0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stop = GracefulStop()
    for step in range(100_000):
        flag = torch.tensor([float(stop.asked.is_set())])
        dist.all_reduce(flag)
        if flag.item():
            torch.save(flag, "/dev/null")
            stop.saved.set()
            break
        if rank == 2 and step == 40:
            subprocess.run(["kill", "-TERM", str(os.getpid())], check=True)
        time.sleep(0.1)


main()
