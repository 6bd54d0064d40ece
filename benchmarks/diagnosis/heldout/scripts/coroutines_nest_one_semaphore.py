"""Requests hold a permit of a semaphore while they wait for a request of their own that needs one, too."""

import asyncio
import time

import torch
import torch.distributed as dist


async def fetch(limit: asyncio.Semaphore, name: str) -> int:
    async with limit:
        await asyncio.sleep(0.05)
        if name.startswith("index"):
            parts = await asyncio.gather(*(fetch(limit, f"part-{n}") for n in range(3)))
            return sum(parts)
        return 1


async def fetch_all(count: int) -> list:
    limit = asyncio.Semaphore(4)
    return await asyncio.gather(*(fetch(limit, f"index-{n}") for n in range(count)))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if step in (10, 30):
            if rank == 0:
                print(asyncio.run(fetch_all(2 if step == 10 else 8)), flush=True)


main()
