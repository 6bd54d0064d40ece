"""The feature service ends its answer with a carriage return alone; the client reads until the line feed."""

import asyncio
import threading

import torch
import torch.distributed as dist


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    count = 0
    while line := await reader.readline():
        count += 1
        writer.write(line.strip() + (b"\r" if count == 9 else b"\r\n"))
        await writer.drain()


def serve(port: "list[int]", ready: threading.Event) -> None:
    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    asyncio.run(run())


async def train(rank: int, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for step in range(10_000):
        if rank == 0:
            writer.write(b"features %d\n" % step)
            await writer.drain()
            await reader.readuntil(b"\r\n")
        dist.all_reduce(torch.rand(16))


dist.init_process_group("gloo")
ports, ready = [], threading.Event()
threading.Thread(target=serve, args=(ports, ready), daemon=True).start()
ready.wait()
asyncio.run(train(dist.get_rank(), ports[0]))
