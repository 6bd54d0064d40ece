"""A look-up in a thread times out and is given up, but asyncio.run waits for its thread before it returns."""

import asyncio
import socket
import time

import torch
import torch.distributed as dist


def ask_registry(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"latest?\n")
        return connection.recv(100)


async def latest(port: int) -> str:
    try:
        answer = await asyncio.wait_for(asyncio.to_thread(ask_registry, port), timeout=3)
        return answer.decode()
    except TimeoutError:
        print("the registry is slow; going on with the pinned version", flush=True)
        return "v7"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    listener = socket.create_server(("127.0.0.1", 0))
    for step in range(30):
        dist.all_reduce(torch.ones(5))
        time.sleep(0.1)
    version = "v7"
    if rank == 0:
        version = asyncio.run(latest(listener.getsockname()[1]))
    for step in range(30, 10_000):
        dist.all_reduce(torch.ones(5))
        time.sleep(0.1)
        print(rank, version, step, flush=True)


main()
