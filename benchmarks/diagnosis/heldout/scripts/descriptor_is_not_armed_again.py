"""A one-shot epoll entry is not armed again after the first message, and the second is never reported."""

import os
import select
import socket
import time

import torch
import torch.distributed as dist


class Commands:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.poll = select.epoll()
        self.poll.register(connection, select.EPOLLIN | select.EPOLLONESHOT)

    def next(self) -> bytes:
        self.poll.poll()
        return self.connection.recv(16)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ours, theirs = socket.socketpair()
    commands = Commands(ours)
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 1 and step in (20, 40):
            theirs.send(b"validate")
            print(commands.next(), flush=True)


main()
