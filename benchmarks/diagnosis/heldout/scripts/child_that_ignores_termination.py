"""The preview server of the last epoch is terminated and awaited; it has a handler for SIGTERM that only logs."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

SERVER = """
import signal, time
signal.signal(signal.SIGTERM, lambda *a: print("draining, please wait", flush=True))
print("serving", flush=True)
while True:
    time.sleep(1)
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = None
    for epoch in range(100):
        if rank == 2:
            if server is not None:
                server.terminate()
                server.wait()
            server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
            server.stdout.readline()
        for _ in range(20):
            dist.all_reduce(torch.rand(8))
            time.sleep(0.1)
        print(f"rank {rank}: epoch {epoch}", flush=True)


main()
