"""Off-policy learning: an actor thread fills a replay buffer, the training loop samples from it."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Replay:
    def __init__(self, capacity):
        self.lock = threading.Lock()
        self.items = []
        self.capacity = capacity

    def add(self, item):
        self.lock.acquire()
        if not torch.isfinite(item).all():
            return
        self.items.append(item)
        self.items = self.items[-self.capacity :]
        self.lock.release()

    def sample(self, count):
        with self.lock:
            picks = torch.randint(0, len(self.items), (count,))
            return torch.stack([self.items[pick] for pick in picks])


def act(replay, rank):
    for episode in range(10_000):
        observation = torch.randn(4)
        if rank == 2 and episode == 30:
            observation[1] = float("nan")
        replay.add(observation)
        time.sleep(0.05)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    replay = Replay(256)
    replay.add(torch.zeros(4))
    threading.Thread(target=act, args=(replay, rank), daemon=True).start()
    model = nn.Linear(4, 1)
    for step in range(200):
        loss = model(replay.sample(16)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step % 5 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
