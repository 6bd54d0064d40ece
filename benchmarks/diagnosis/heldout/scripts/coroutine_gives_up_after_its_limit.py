"""An asyncio wait for a peer that does not come ends by its own limit."""

import asyncio
import time

import torch
import torch.distributed as dist


async def find_peer() -> str:
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 15)
    except TimeoutError:
        return "alone"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 0 and step == 40:
            print(asyncio.run(find_peer()), flush=True)
    dist.destroy_process_group()


main()
