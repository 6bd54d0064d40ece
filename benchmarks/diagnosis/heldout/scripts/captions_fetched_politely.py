"""Fetches captions for hard samples from a service that allows two requests a second."""

import asyncio

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(b"a caption for " + line)
        await writer.drain()
    writer.close()


async def fetch(numbers, interval=0.5):
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    captions = []
    for number in numbers:
        writer.write(f"{number}\n".encode())
        captions.append((await reader.readline()).decode().strip())
        await asyncio.sleep(interval)
    writer.close()
    await writer.wait_closed()
    server.close()
    return captions


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        if rank == 2 and epoch == 0:
            captions = asyncio.run(fetch(range(30)))
            print(f"[rank {rank}] {len(captions)} captions, the last is {captions[-1]!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
