"""A coroutine takes from a queue.Queue instead of an asyncio.Queue, so the coroutine that would fill it never runs."""

import asyncio
import queue

import torch
import torch.distributed as dist

batches: queue.Queue = queue.Queue(maxsize=8)


async def read(rank: int) -> None:
    for number in range(100_000):
        # The first ranks' shards are in memory; the last one's come over the network.
        if rank == 0 and number > 12:
            await asyncio.sleep(0.1)
        while batches.full():
            await asyncio.sleep(0.01)
        batches.put(torch.full((8,), float(number)))


async def train(rank: int) -> None:
    step = 0
    while True:
        await asyncio.sleep(0.06)
        batch = batches.get()
        dist.all_reduce(batch)
        step += 1
        print(f"{rank}: {step}", flush=True)


async def main() -> None:
    rank = dist.get_rank()
    await asyncio.gather(read(rank), train(rank))


dist.init_process_group("gloo")
asyncio.run(main())
