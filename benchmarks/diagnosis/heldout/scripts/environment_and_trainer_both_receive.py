"""A simulator in a process: after an episode's end it waits for `reset`, and the trainer waits for an observation."""

import multiprocessing
import random
import time

import torch
import torch.distributed as dist


def simulate(pipe, limit: int) -> None:
    while True:
        assert pipe.recv() == "reset"
        for tick in range(limit):
            pipe.send((tick, random.random()))
            pipe.recv()


class Env:
    def __init__(self, limit: int) -> None:
        fork = multiprocessing.get_context("fork")
        self.pipe, other = fork.Pipe()
        fork.Process(target=simulate, args=(other, limit), daemon=True).start()

    def reset(self) -> tuple:
        self.pipe.send("reset")
        return self.pipe.recv()

    def step(self, action: int) -> tuple:
        self.pipe.send(action)
        return self.pipe.recv()


def rollout(env: Env, horizon: int, value: torch.Tensor) -> None:
    env.reset()
    for _ in range(horizon - 1):
        _, reward = env.step(1)
        value += reward
        dist.all_reduce(value)
        print("reward", value.item(), flush=True)
        time.sleep(0.1)


dist.init_process_group("gloo")
rank = dist.get_rank()
env = Env(limit=35 if rank == 0 else 90)
for _ in range(100):
    rollout(env, 90, torch.zeros(1))
