"""A mirror that is slow is given up after some seconds, but asyncio.run lets its thread come to an end first."""

import asyncio
import time

import torch
import torch.distributed as dist


def ask_mirror(seconds: float) -> str:
    time.sleep(seconds)
    return "v9"


async def version(seconds: float) -> str:
    try:
        return await asyncio.wait_for(asyncio.to_thread(ask_mirror, seconds), timeout=2)
    except TimeoutError:
        print("the mirror is slow", flush=True)
        return "v8"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(30):
        dist.all_reduce(torch.rand(2))
        time.sleep(0.05)
    found = [asyncio.run(version(19)) if rank == 1 else None]
    dist.broadcast_object_list(found, src=1)
    print(rank, found, flush=True)
    for _ in range(30):
        dist.all_reduce(torch.rand(2))
        time.sleep(0.02)
    dist.destroy_process_group()


main()
