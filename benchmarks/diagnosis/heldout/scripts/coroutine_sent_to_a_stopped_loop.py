"""The loop of the background client was closed down at the end of the warm-up; coroutines are still sent to it."""

import asyncio
import threading
import time

import torch
import torch.distributed as dist


class Background:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)


async def read_range(start: int) -> torch.Tensor:
    await asyncio.sleep(0.03)
    return torch.arange(start, start + 8, dtype=torch.float32)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    remote = Background()
    for step in range(100_000):
        if step == 60:
            print(f"{rank}: warm-up over", flush=True)
            if rank == 2:
                remote.stop()
                time.sleep(0.5)
        batch = remote.call(read_range(8 * step))
        dist.all_reduce(batch)


main()
