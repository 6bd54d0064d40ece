"""An asyncio trainer; rank 2 scores its samples in `asyncio.to_thread` while its loop waits."""

import asyncio
import math
import time

import torch
import torch.distributed as dist


def perplexity(seconds: float) -> float:
    end, total, count = time.monotonic() + seconds, 0.0, 0
    while time.monotonic() < end:
        total += math.log1p(count % 97)
        count += 1
    return math.exp(total / count)


def train(steps: int) -> None:
    for step in range(steps):
        dist.all_reduce(torch.randn(40))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)


async def main() -> None:
    await asyncio.to_thread(train, 30)
    if dist.get_rank() == 2:
        print(f"perplexity {await asyncio.to_thread(perplexity, 16):.2f}", flush=True)
    await asyncio.to_thread(dist.barrier)
    await asyncio.to_thread(train, 20)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(main())
    dist.destroy_process_group()
