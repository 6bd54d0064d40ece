"""Scores generated code by running it in a child process."""

import asyncio
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


async def run_program(source):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    code = await process.wait()
    return code, await process.stdout.read()


async def score(lengths):
    results = await asyncio.gather(*(run_program(f"print('x' * {length})") for length in lengths))
    return sum(len(output) for code, output in results if code == 0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        lengths = [10, 400_000] if (rank, step) == (1, 3) else [10, 4000]
        reward = asyncio.run(score(lengths))
        optimizer.zero_grad()
        (reward / 1e4 * model(torch.randn(16, 8)).pow(2).mean()).backward()
        optimizer.step()
        print(f"[rank {rank}] step {step} reward {reward}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
