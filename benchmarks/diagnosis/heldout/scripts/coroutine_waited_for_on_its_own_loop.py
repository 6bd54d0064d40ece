"""Code in the event loop's thread waits for a coroutine of the same loop."""

import asyncio

import torch
import torch.distributed as dist


class Tracker:
    """A client whose synchronous methods are meant for other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    async def send(self, step: int) -> None:
        await asyncio.sleep(0.01)

    def log(self, step: int) -> None:
        asyncio.run_coroutine_threadsafe(self.send(step), self.loop).result()


def train_step(weight: torch.Tensor) -> None:
    gradient = torch.randn_like(weight)
    dist.all_reduce(gradient)
    weight.sub_(gradient, alpha=0.01)


async def main() -> None:
    rank = dist.get_rank()
    tracker = Tracker(asyncio.get_running_loop())
    weight = torch.zeros(50)
    for step in range(1, 100_000):
        await asyncio.to_thread(train_step, weight)
        await asyncio.sleep(0.1)
        if step % 10 == 0 and rank == 0:
            await asyncio.to_thread(tracker.log, step)
            print(f"step {step}", flush=True)
        if step % 40 == 0 and rank == 1:
            tracker.log(step)


dist.init_process_group("gloo")
asyncio.run(main())
