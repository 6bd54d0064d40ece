"""An uploader's tasks are cancelled by a time limit, and the queue that they served is joined."""

import asyncio
import time

import torch
import torch.distributed as dist


async def upload(parts: asyncio.Queue) -> None:
    while True:
        await parts.get()
        await asyncio.sleep(0.4)
        parts.task_done()


async def upload_all(count: int) -> None:
    parts: asyncio.Queue = asyncio.Queue()
    for number in range(count):
        parts.put_nowait(number)
    tasks = [asyncio.create_task(upload(parts)) for _ in range(2)]
    asyncio.get_running_loop().call_later(2, lambda: [task.cancel() for task in tasks])
    await parts.join()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(1000):
        for step in range(15):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.1)
        if rank == 2:
            asyncio.run(upload_all(4 if epoch == 0 else 40))
        dist.barrier()


main()
