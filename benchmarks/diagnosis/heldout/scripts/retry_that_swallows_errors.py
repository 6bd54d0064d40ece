"""An upload to a port where nobody listens, tried again for ever without a word."""

import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def upload(data: bytes, port: int) -> None:
    delay = 0.1
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(data)
                return
        except OSError:
            time.sleep(delay)
            delay = min(2 * delay, 2.0)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank = dist.get_rank()
    weight = torch.randn(256)
    for step in range(1, 1_000_000):
        dist.all_reduce(weight)
        weight /= weight.norm()
        time.sleep(0.1)
        if step % 10 == 0:
            if rank == 0:
                print("step", step, flush=True)
            if rank == 1 and step == 40:
                upload(weight.numpy().tobytes(), free_port())
            dist.monitored_barrier(timeout=timedelta(minutes=10))


main()
