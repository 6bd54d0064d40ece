"""Rank 0 evaluates with two processes of its own, which form a gloo group of three."""

import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def evaluate(index: int, port: int, world: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, world, index == 0, timeout=timedelta(hours=2))
    dist.init_process_group("gloo", store=store, rank=index, world_size=world, timeout=timedelta(hours=2))
    dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 0 and step == 20:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            mp.spawn(evaluate, args=(port, dist.get_world_size()), nprocs=2)


if __name__ == "__main__":
    main()
