"""Rank 0 downloads a tokenizer that comes in small pieces; the others wait in a broadcast."""

import socket
import threading
import time
from urllib.request import urlopen

import torch
import torch.distributed as dist

PIECES = 28


def trickle(server: socket.socket) -> None:
    connection, _ = server.accept()
    connection.recv(10_000)
    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % (PIECES * 1000))
    for _ in range(PIECES):
        time.sleep(0.5)
        connection.sendall(b"x" * 1000)
    connection.close()


def download() -> bytes:
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=trickle, args=(server,), daemon=True).start()
    with urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/tokenizer.json") as answer:
        return answer.read()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(4):
        size = [len(download()) if rank == 0 and epoch == 2 else 0]
        dist.broadcast_object_list(size, src=0)
        for _ in range(15):
            dist.all_reduce(torch.ones(10))
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch} vocabulary {size[0]}", flush=True)
    dist.destroy_process_group()


main()
