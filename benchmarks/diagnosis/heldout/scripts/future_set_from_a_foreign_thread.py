"""A client library's thread sets an asyncio future directly, which does not wake the loop."""

import asyncio
import threading
import time

import torch
import torch.distributed as dist


class Client:
    def ask(self, future: asyncio.Future) -> None:
        threading.Timer(1.5, self.answer, (future,)).start()

    def answer(self, future: asyncio.Future) -> None:
        if not future.done():
            future.set_result({"learning_rate": 1e-3})


async def ask_for_schedule() -> dict:
    future = asyncio.get_running_loop().create_future()
    Client().ask(future)
    return await future


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 1 and step == 40:
            print(asyncio.run(ask_for_schedule()), flush=True)
        if step % 20 == 0:
            print(rank, step, flush=True)


main()
