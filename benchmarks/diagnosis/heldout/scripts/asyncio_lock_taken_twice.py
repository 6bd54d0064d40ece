"""A coroutine that refreshes the token is called under the lock that it takes itself."""

import asyncio
import time

import torch
import torch.distributed as dist


class Client:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.token_valid_until = time.monotonic() + 4

    async def refresh(self) -> None:
        async with self.lock:
            await asyncio.sleep(0.05)
            self.token_valid_until = time.monotonic() + 4

    async def fetch(self, name: str) -> int:
        async with self.lock:
            if time.monotonic() > self.token_valid_until:
                await self.refresh()
            await asyncio.sleep(0.02)
        return len(name)


async def train() -> None:
    rank = dist.get_rank()
    client = Client()
    if rank != 1:
        client.token_valid_until = float("inf")  # a service account
    for step in range(10_000):
        sizes = await asyncio.gather(*(client.fetch(f"{rank}/{step}/{i}") for i in range(3)))
        total = torch.tensor([float(sum(sizes))])
        dist.all_reduce(total)
        if step % 10 == 0:
            print(f"[{rank}] step {step}: {total.item()}", flush=True)


dist.init_process_group("gloo")
asyncio.run(train())
