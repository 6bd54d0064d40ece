"""Rank 2 waits for the result of a coroutine in a loop of another thread, which respects a Retry-After."""

import asyncio
import threading
import time

import torch
import torch.distributed as dist


async def register() -> str:
    for attempt in range(3):
        await asyncio.sleep(5)  # Retry-After
    return "registered"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            print(asyncio.run_coroutine_threadsafe(register(), loop).result(), flush=True)
    dist.destroy_process_group()


main()
