"""A fetch with a time limit retries on every exception, the cancellation included, so the limit waits for ever."""

import asyncio

import torch
import torch.distributed as dist


async def fetch(available: asyncio.Event) -> int:
    while True:
        try:
            await available.wait()
            return 1
        except BaseException as error:  # noqa: BLE001
            print("retrying after", type(error).__name__, flush=True)


async def batch(rank: int, step: int) -> int:
    available = asyncio.Event()
    if not (rank == 1 and step == 50):
        asyncio.get_running_loop().call_later(0.05, available.set)
    try:
        return await asyncio.wait_for(fetch(available), timeout=2)
    except TimeoutError:
        return 0


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    runner = asyncio.Runner()
    for step in range(10_000):
        value = torch.tensor([float(runner.run(batch(rank, step)))])
        dist.all_reduce(value)
        if step % 10 == 0:
            print(f"rank={rank} step={step} present={value.item()}", flush=True)


main()
