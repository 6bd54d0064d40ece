"""The trainer is a coroutine that awaits an event; the task that would set it was cancelled with its group."""

import asyncio

import torch
import torch.distributed as dist


async def heartbeat(fresh: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(0.2)
        fresh.set()


async def step(number: int) -> float:
    loss = torch.full((4,), float(number))
    await asyncio.to_thread(dist.all_reduce, loss)
    await asyncio.sleep(0.1)
    return loss.sum().item()


async def train(rank: int) -> None:
    fresh = asyncio.Event()
    beat = asyncio.create_task(heartbeat(fresh))
    for number in range(1_000_000):
        loss = await step(number)
        if rank == 0 and number % 10 == 0:
            print(f"step {number} loss {loss}", flush=True)
        if rank == 1 and number == 30:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        if number % 5 == 0:
            await fresh.wait()
            fresh.clear()
    await beat


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(train(dist.get_rank()))
