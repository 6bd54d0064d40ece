"""Started by run.sh; one rank accepts a connection of a visualiser that does not come."""

import socket
import time

import torch
import torch.distributed as dist


def send_embeddings(weight: torch.Tensor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection, address = server.accept()
        connection.sendall(weight.numpy().tobytes())
        print("sent to", address, flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.randn(64, 2)
    for step in range(1, 100_000):
        dist.all_reduce(weight)
        weight /= weight.norm()
        time.sleep(0.1)
        if rank == 1 and step % 10 == 0:
            print("step", step, flush=True)
        if rank == 0 and step == 40:
            send_embeddings(weight)


main()
