"""A local metrics socket whose server no longer accepts: its queue is full, and `connect` waits for a place in it."""

import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist


def metrics_socket() -> tuple[socket.socket, str]:
    path = os.path.join(tempfile.mkdtemp(), "metrics.sock")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(3)
    return server, path


def push(path: str, text: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(path)
    client.sendall(text.encode())
    return client


dist.init_process_group("gloo")
rank = dist.get_rank()
server, path = metrics_socket()
pushed = []
for step in range(1_000_000):
    value = torch.randn(3, 3)
    dist.all_reduce(value)
    if step % 8 == 0:
        if rank == 1:
            pushed.append(push(path, f"value {value.mean():.4f}"))
        print(rank, step, flush=True)
    time.sleep(0.1)
