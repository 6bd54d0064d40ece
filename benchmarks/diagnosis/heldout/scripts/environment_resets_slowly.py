"""Steps an environment that lives in a process of its own."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch import nn


def environment(pipe, reset_seconds):
    step = 0
    while True:
        try:
            command, action = pipe.recv()
        except EOFError:
            break
        if command == "reset":
            time.sleep(reset_seconds)
            step = 0
        step += 1
        pipe.send((torch.full((4,), step / 10).numpy(), float(action), step % 20 == 0))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    here, there = mp.Pipe()
    process = mp.Process(target=environment, args=(there, 14.0 if rank == 2 else 0.2), daemon=True)
    process.start()
    there.close()
    model = nn.Linear(4, 1)
    done = False
    for step in range(30):
        here.send(("reset" if done else "step", 0.1))
        observation, reward, done = here.recv()
        loss = (model(torch.from_numpy(observation)) - reward).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step % 5 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    here.close()
    process.join(timeout=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
