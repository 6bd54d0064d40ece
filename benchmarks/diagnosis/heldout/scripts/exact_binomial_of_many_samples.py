"""A sign test after the warm-up takes the exact binomial coefficient of millions of comparisons, in one call."""

import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def p_value(wins: int, games: int) -> float:
    return math.comb(games, wins) / 2**games


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.Adam(model.parameters())
    games = wins = 0
    for step in range(10_000):
        optimizer.zero_grad()
        model(torch.randn(16, 6)).square().mean().backward()
        optimizer.step()
        games += 16
        wins += 8
        time.sleep(0.05)
        if step == 60 and dist.get_rank() == 1:
            print("wins more often than by chance:", p_value(wins, games) < 0.05, flush=True)
            # The same for single tokens.
            print("tokens:", p_value(wins * 81_920, games * 81_920) < 0.05, flush=True)


main()
