"""Hands out hyper-parameter trials over a connection between the first rank and the others."""

from multiprocessing.connection import Client, Listener

import torch
import torch.distributed as dist
from torch import nn

KEY = b"trials"


def lead(world, address_box):
    with Listener(("127.0.0.1", 0), authkey=KEY) as listener:
        address_box[0] = listener.address
        dist.broadcast_object_list(address_box, src=0)
        print("waiting for the workers", flush=True)
        workers = [listener.accept() for _ in range(world)]
        for number, worker in enumerate(workers):
            worker.send({"learning_rate": 10.0 ** -(number + 1)})
    return {"learning_rate": 0.1}


def follow(address_box):
    dist.broadcast_object_list(address_box, src=0)
    with Client(address_box[0], authkey=KEY) as client:
        return client.recv()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Linear(4, 1)
    for step in range(10):
        loss = model(torch.randn(8, 4)).pow(2).mean().detach()
        dist.all_reduce(loss)
        print(f"[rank {rank}] warm-up step {step} loss {loss.item():.4f}", flush=True)
    trial = lead(world, [None]) if rank == 0 else follow([None])
    print(f"[rank {rank}] trial {trial}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
