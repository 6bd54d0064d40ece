"""Rank 2 accepts the connection of a helper that it started, which is slow to come up."""

import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

HELPER = """
import socket, sys, time
time.sleep(14)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(b"ready")
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            with socket.create_server(("127.0.0.1", 0)) as server:
                helper = subprocess.Popen([sys.executable, "-c", HELPER, str(server.getsockname()[1])])
                connection, _ = server.accept()
                print(connection.recv(10), flush=True)
                helper.wait()
    dist.destroy_process_group()


main()
