"""An asyncio client and its server, both of one rank, read until the end of the stream; neither has ended its own."""

import asyncio
import time

import torch
import torch.distributed as dist


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.read()
    writer.write(request.upper())
    await writer.drain()
    writer.close()


async def ask(text: bytes) -> bytes:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    await writer.drain()
    answer = await reader.read()
    server.close()
    return answer


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 0 and step == 40:
            print(asyncio.run(ask(b"which vocabulary?")), flush=True)


main()
