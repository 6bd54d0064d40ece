"""An asyncio job tokenizes in a coroutine without giving up the loop, so that even its heartbeat stands still."""

import asyncio
import re
import time

import torch
import torch.distributed as dist


async def beat(rank: int) -> None:
    while True:
        await asyncio.sleep(1)
        print(f"rank {rank} is alive", flush=True)


async def tokenize(text: str, seconds: float) -> int:
    end = time.monotonic() + seconds
    tokens = 0
    while time.monotonic() < end:
        tokens += sum(len(m.group()) for m in re.finditer(r"\w+|[^\w\s]", text))
    return tokens


async def train() -> None:
    rank = dist.get_rank()
    heart = asyncio.create_task(beat(rank))
    text = "The quick brown fox, it jumps! " * 2000
    for epoch in range(3):
        count = await tokenize(text, 15 if rank == 2 and epoch == 1 else 0.05)
        total = torch.tensor([float(count)])
        dist.all_reduce(total)
        await asyncio.sleep(1)
        print(rank, epoch, total.item(), flush=True)
    heart.cancel()


dist.init_process_group("gloo")
asyncio.run(train())
dist.destroy_process_group()
