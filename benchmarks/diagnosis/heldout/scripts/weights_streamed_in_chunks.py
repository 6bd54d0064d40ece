"""Rank 0 streams weights to rank 2 in chunks, each fetched slowly before; rank 1 is at the barrier all the time."""

import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    chunk = torch.zeros(1000)
    for number in range(7):
        if rank == 0:
            time.sleep(2.7)  # from the archive
            chunk.fill_(number)
            dist.send(chunk, 2, tag=number)
        elif rank == 2:
            dist.recv(chunk, 0, tag=number)
            print("chunk", number, chunk.mean().item(), flush=True)
    dist.barrier()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.02)
    dist.destroy_process_group()


main()
