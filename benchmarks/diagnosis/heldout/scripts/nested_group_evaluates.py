"""Rank 0 evaluates with two processes of its own in a gloo group, one of which prepares for a while."""

import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def evaluate(index: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, 2, index == 0)
    dist.init_process_group("gloo", store=store, rank=index, world_size=2)
    if index == 0:
        time.sleep(8)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            mp.spawn(evaluate, args=(port,), nprocs=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
