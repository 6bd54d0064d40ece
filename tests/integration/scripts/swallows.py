"""Trains in place, and goes on where a collective fails, as no script should. Rank 2 dies in its first process
group."""

import os
import signal

import torch
from torch import nn

from elastic_run import torch as elastic

torch.manual_seed(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state = elastic.State(model=model, optimizer=optimizer, trained=0)


@elastic.run
def train(state: elastic.State) -> None:
    net, world = state.ddp(), state.context
    while state.trained < 60:
        torch.manual_seed(1000 * state.trained + world.rank)
        if state.trained == 30 and world.round == 1 and world.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        try:
            net(torch.randn(8, 4)).square().mean().backward()
        except RuntimeError:
            print("skips a batch", flush=True)
        optimizer.step()
        state.trained += 1
        state.commit()


train(state)
print(f"ends after {state.trained} steps with {model.weight.tolist()}", flush=True)
