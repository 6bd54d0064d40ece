"""Rank 1 follows the log of the server that it started for a line which this version words differently."""

import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

SERVER = "import time; print('listening on 0.0.0.0:9000', flush=True); time.sleep(100000)"


def start_server() -> subprocess.Popen:
    log = tempfile.NamedTemporaryFile("w+")
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=log)
    while True:
        with open(log.name) as lines:
            if any("Server started" in line for line in lines):
                return server
        if server.poll() is not None:
            raise SystemExit("the server failed")
        time.sleep(0.3)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 1 and step == 40:
            start_server()


main()
