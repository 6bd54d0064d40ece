"""Rank 2 awaits, in asyncio, the answers of a language model that writes a word a second."""

import asyncio

import torch
import torch.distributed as dist


async def generate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    for number in range(15):
        await asyncio.sleep(1)
        writer.write(f"word{number}\n".encode())
        await writer.drain()
    writer.close()


async def judge() -> int:
    server = await asyncio.start_server(generate, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"Which answer is better?\n")
    words = 0
    while await reader.readline():
        words += 1
    writer.close()
    return words


async def train(steps: int) -> None:
    for step in range(steps):
        dist.all_reduce(torch.ones(2))
        await asyncio.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)


async def main() -> None:
    await train(30)
    if dist.get_rank() == 2:
        print("judged in", await judge(), "words", flush=True)
    await train(20)


dist.init_process_group("gloo")
asyncio.run(main())
dist.destroy_process_group()
