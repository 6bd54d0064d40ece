"""A licence server takes no more connections; the client's connect has no limit, and is repeated."""

import socket
import time

import torch
import torch.distributed as dist


def crowd() -> "tuple[str, int, list]":
    """A server whose backlog is full."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    others = [server]
    for _ in range(4):
        other = socket.socket()
        other.setblocking(False)
        other.connect_ex(server.getsockname())
        others.append(other)
    return (*server.getsockname(), others)


def check_out(host: str, port: int) -> bytes:
    while True:
        try:
            with socket.create_connection((host, port)) as connection:
                connection.sendall(b"CHECKOUT solver\n")
                return connection.recv(100)
        except OSError:
            time.sleep(5)


def main() -> None:
    dist.init_process_group("gloo")
    host, port, _held = crowd()
    for step in range(10_000):
        if dist.get_rank() == 2 and step == 20:
            check_out(host, port)
        dist.all_reduce(torch.rand(16))


main()
