"""A port serves as the mutex of the node. Rank 1 keeps it until a barrier, and rank 2 tries to bind it before that."""

import os
import socket
import time

import torch
import torch.distributed as dist

PORT = 20_000 + int(os.environ["MASTER_PORT"]) % 10_000


def take() -> socket.socket:
    while True:
        mutex = socket.socket()
        try:
            mutex.bind(("127.0.0.1", PORT))
            return mutex
        except OSError:
            mutex.close()
            time.sleep(0.5)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if step == 40:
            if rank == 1:
                mutex = take()
            if rank == 2:
                time.sleep(1)
                take().close()
            dist.barrier()
            if rank == 1:
                mutex.close()


main()
