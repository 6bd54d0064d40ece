"""Reads simulated transitions from a simulator process, a line each."""

import select
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

SIMULATOR = """
import sys
for request in sys.stdin:
    count = int(request)
    sys.stdout.write("".join(f"{index / count}\\n" for index in range(count)))
    sys.stdout.flush()
"""


class Simulator:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SIMULATOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rollout(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        values = []
        while len(values) < count:
            select.select([self.process.stdout], [], [])
            values.append(float(self.process.stdout.readline()))
        return torch.tensor(values)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    simulator = Simulator()
    model = nn.Linear(1, 1)
    lengths = {0: [1, 1, 1, 1, 1, 1], 1: [1, 1, 1, 3, 1, 1], 2: [1, 1, 1, 1, 1, 1]}[rank]
    for episode, length in enumerate(lengths):
        states = simulator.rollout(length)
        loss = model(states[:, None]).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        print(f"[rank {rank}] episode {episode} of length {length}, loss {loss.item():.4f}", flush=True)
    simulator.process.stdin.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
