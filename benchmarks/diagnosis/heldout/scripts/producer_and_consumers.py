"""Reinforcement learning: rank 2 plays episodes, some of them long; the others learn from what it sends."""

import random
import time

import torch
import torch.distributed as dist


def play(seconds: float) -> torch.Tensor:
    end, rewards = time.monotonic() + seconds, []
    while time.monotonic() < end:
        state = 0
        for _ in range(1_000):
            state += random.choice((-1, 1))
        rewards.append(float(state))
    return torch.tensor([sum(rewards), float(len(rewards))])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    learners = dist.new_group([0, 1])
    for episode in range(30):
        if rank == 2:
            result = play(6 if 14 <= episode < 17 else 0.2)
            dist.send(result, dst=0)
            dist.send(result, dst=1)
        else:
            result = torch.empty(2)
            dist.recv(result, src=2)
            gradient = torch.randn(10) * result[0] / result[1]
            dist.all_reduce(gradient, group=learners)
        if episode % 5 == 0:
            print(f"rank {rank} episode {episode}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
