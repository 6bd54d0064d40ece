"""All ranks ask the same service for their learning rate, and it answers nobody."""

import socket

import torch
import torch.distributed as dist


def ask(address: "tuple[str, int]") -> bytes:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /rate HTTP/1.0\r\n\r\n")
        return connection.recv(4096)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = socket.create_server(("127.0.0.1", 0)) if rank == 0 else None
    port = torch.tensor([server.getsockname()[1] if server else 0])
    dist.broadcast(port, src=0)
    for step in range(10_000):
        if step == 15:
            ask(("127.0.0.1", int(port)))
        dist.all_reduce(torch.rand(16))


main()
