"""An asyncio trainer awaits the end of an external converter, which waits for work of its own for ever."""

import asyncio
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

QUICK = "print('converted')"
IDLE = "import threading; threading.Event().wait()"


class Trainer:
    def __init__(self) -> None:
        dist.init_process_group("gloo", timeout=timedelta(minutes=10))
        self.rank = dist.get_rank()

    async def convert(self, epoch: int) -> None:
        programme = QUICK if epoch < 3 else IDLE
        child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", programme)
        code = await child.wait()
        print(f"converter of epoch {epoch} ended with {code}", flush=True)

    async def epoch(self, number: int) -> None:
        for _ in range(10):
            work = dist.all_reduce(torch.ones(5), async_op=True)
            await asyncio.to_thread(work.wait)
            await asyncio.sleep(0.08)
        if self.rank == 0:
            await self.convert(number)

    async def fit(self) -> None:
        for number in range(10_000):
            await self.epoch(number)
            print(f"rank {self.rank} finished {number}", flush=True)


asyncio.run(Trainer().fit())
