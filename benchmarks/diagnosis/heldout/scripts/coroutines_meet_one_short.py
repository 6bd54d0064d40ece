"""Plays games with several agents at once; they go on to the next turn together."""

import asyncio

import torch
import torch.distributed as dist
from torch import nn


async def agent(number, turn, seed, turns=4):
    total = 0.0
    generator = torch.Generator().manual_seed(seed * 10 + number)
    for _ in range(turns):
        move = torch.rand(1, generator=generator).item()
        if move > 0.97:
            raise ValueError(f"agent {number} made the invalid move {move:.3f}")
        total += move
        await asyncio.sleep(0.02)
        await turn.wait()
    return total


async def play(seed, agents=4):
    turn = asyncio.Barrier(agents)
    jobs = [agent(number, turn, seed) for number in range(agents)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    return [result for result in results if isinstance(result, float)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(1, 1)
    for game, seed in enumerate(SEEDS[rank]):
        scores = asyncio.run(play(seed))
        loss = model(torch.tensor([[sum(scores)]])).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        print(f"[rank {rank}] game {game} scores {[round(score, 2) for score in scores]}", flush=True)
    dist.destroy_process_group()


SEEDS = [[2, 3, 4, 6, 7, 10], [11, 12, 13, 14, 15, 18], [19, 22, 23, 1, 24, 26]]

if __name__ == "__main__":
    main()
