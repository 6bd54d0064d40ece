"""Rank 1 sends a datagram again each few seconds; the fifth one is answered."""

import socket
import threading
import time

import torch
import torch.distributed as dist


def serve(server: socket.socket) -> None:
    for number in range(5):
        _, client = server.recvfrom(100)
    server.sendto(b"seed 7", client)


def ask(address: tuple) -> bytes:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(3.5)
        while True:
            client.sendto(b"seed?", address)
            try:
                return client.recv(100)
            except TimeoutError:
                continue


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            server = socket.socket(type=socket.SOCK_DGRAM)
            server.bind(("127.0.0.1", 0))
            threading.Thread(target=serve, args=(server,), daemon=True).start()
            print(ask(server.getsockname()), flush=True)
    dist.destroy_process_group()


main()
