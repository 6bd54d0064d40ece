"""A tokenizer service says the length of its answer in little-endian, its client reads big-endian and waits for megabytes."""

import multiprocessing
import socket
import struct
import time

import torch
import torch.distributed as dist


def serve(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    while text := connection.recv(1000):
        ids = bytes(b % 100 for b in text)
        connection.sendall(struct.pack("<I", len(ids)) + ids)


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def ask(connection: socket.socket, text: str) -> bytes:
    connection.sendall(text.encode())
    (size,) = struct.unpack(">I", read(connection, 4))
    return read(connection, size)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    if rank == 2:
        client = socket.create_connection(listener.getsockname())
    for step in range(10_000):
        dist.all_reduce(torch.ones(2))
        time.sleep(0.1)
        if rank == 2 and step == 30:
            print("prompt of", len(ask(client, "write a haiku about gradients")), "tokens", flush=True)
        if step % 10 == 0:
            print(rank, step, flush=True)


main()
