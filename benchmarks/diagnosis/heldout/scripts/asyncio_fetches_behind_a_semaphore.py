"""An asyncio trainer on rank 1 gathers shards, two at a time; every one takes its while."""

import asyncio

import torch
import torch.distributed as dist


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    await asyncio.sleep(3)
    writer.write(b"shard\n")
    await writer.drain()
    writer.close()


async def fetch(port: int, number: int, slots: asyncio.Semaphore) -> bytes:
    async with slots:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\n" % number)
        shard = await reader.readline()
        writer.close()
        return shard


async def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for epoch in range(3):
        if rank == 1 and epoch == 2:
            slots = asyncio.Semaphore(2)
            shards = await asyncio.gather(*(fetch(port, number, slots) for number in range(8)))
            print(len(shards), "shards", flush=True)
        for _ in range(16):
            dist.all_reduce(torch.ones(3))
            await asyncio.sleep(0.1)
        print(f"rank {rank}: epoch {epoch}", flush=True)
    server.close()
    dist.destroy_process_group()


asyncio.run(main())
