"""Rank 0 answers questions between its steps. Rank 2 asks within a step, and rank 0 is already in the reduction."""

import os
import select
import socket
import time

import torch
import torch.distributed as dist

PATH = f"/tmp/questions-{os.environ['MASTER_PORT']}"


def answer_waiting(server: socket.socket) -> None:
    while select.select([server], [], [], 0)[0]:
        connection, _ = server.accept()
        with connection:
            connection.sendall(connection.recv(100).upper())


def ask(text: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(PATH)
        connection.sendall(text)
        return connection.recv(100)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        server = socket.socket(socket.AF_UNIX)
        server.bind(PATH)
        server.listen()
    for step in range(100_000):
        if rank == 0:
            answer_waiting(server)
        if rank == 2 and step == 40:
            time.sleep(1)
            ask(b"which curriculum?")
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)


main()
