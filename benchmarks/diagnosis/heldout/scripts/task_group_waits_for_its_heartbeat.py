"""A task group around the uploads also has a heartbeat without end, so the group never closes."""

import asyncio
import random
import time

import torch
import torch.distributed as dist


async def beat() -> None:
    while True:
        await asyncio.sleep(2)


async def upload(part: int) -> None:
    await asyncio.sleep(0.2 + random.random())
    print("uploaded part", part, flush=True)


async def upload_all(parts: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(beat())
        for part in range(parts):
            group.create_task(upload(part))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.zeros(1000)
    for step in range(100_000):
        gradient = torch.randn(1000)
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
        time.sleep(0.05)
        if rank == 0 and step == 70:
            asyncio.run(upload_all(5))
        if step % 25 == 0:
            print(f"rank {rank}: step {step}", flush=True)


main()
