"""A remote debugger was left in: it listens, and waits for somebody to attach."""

import os
import pdb
import socket
import time

import torch
import torch.distributed as dist


class RemotePdb(pdb.Pdb):
    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        connection, _ = listener.accept()
        stream = connection.makefile("rw")
        super().__init__(stdin=stream, stdout=stream)


def check(loss: float, step: int) -> None:
    if os.environ.get("RANK") == "0" and step == 33:
        RemotePdb().set_trace()


dist.init_process_group("gloo")
value = torch.ones(1)
for step in range(10_000):
    dist.all_reduce(value)
    value /= dist.get_world_size()
    check(value.item(), step)
    time.sleep(0.1)
    if step % 10 == 0:
        print(f"rank {dist.get_rank()} step {step}", flush=True)
