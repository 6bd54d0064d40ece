"""An asyncio feeder; its task failed, and nobody looks at it."""

import asyncio

import torch
import torch.distributed as dist


async def feed(batches: asyncio.Queue, rank: int) -> None:
    for number in range(100_000):
        if rank == 0 and number == 45:
            raise ConnectionResetError("peer closed the stream")
        await asyncio.sleep(0.05)
        await batches.put(torch.randn(16, 4))


async def train() -> None:
    rank = dist.get_rank()
    batches: asyncio.Queue = asyncio.Queue(maxsize=2)
    feeder = asyncio.create_task(feed(batches, rank), name="feeder")
    step = 0
    while True:
        batch = await batches.get()
        mean = batch.mean(0)
        await asyncio.to_thread(dist.all_reduce, mean)
        step += 1
        if rank == 2 and step % 10 == 0:
            print(f"step {step}, feeder {feeder.get_name()}", flush=True)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(train())
