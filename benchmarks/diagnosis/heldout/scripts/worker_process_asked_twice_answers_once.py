"""An environment process per rank, as in reinforcement learning."""

import multiprocessing as mp
import random
import time

import torch
import torch.distributed as dist


def environment(conn, seed):
    rng = random.Random(seed)
    length = 0
    while True:
        command, value = conn.recv()
        if command == "step":
            length += 1
            done = seed == 1 and length == 23
            conn.send((rng.random() + value, done))
        elif command == "reset":
            length = 0
        elif command == "observe":
            conn.send(rng.random())


class Env:
    def __init__(self, seed):
        self.conn, other = mp.Pipe()
        mp.get_context("fork").Process(target=environment, args=(other, seed), daemon=True).start()

    def step(self, action):
        self.conn.send(("step", action))
        return self.conn.recv()

    def reset(self):
        self.conn.send(("reset", None))
        return self.conn.recv()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    env = Env(rank)
    policy = torch.zeros(1)
    for step in range(500):
        reward, done = env.step(float(policy))
        if done:
            print(f"rank {rank}: episode ended at {step}")
            reward = env.reset()
        g = torch.tensor([reward])
        dist.all_reduce(g)
        policy += 0.001 * g
        time.sleep(0.2)
        if step % 5 == 0:
            print(f"rank {rank} step {step} policy {policy.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
