"""Trains in place with a model on a device. Rank 1 kills itself once, between the optimizer's step and the commit.

Rank 0 waits for it there, in a collective of a tensor on the device, and goes back to the commit from its copy there.
"""

# torch annotates itself only in part:
# pyright: basic

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from elastic_run import torch as elastic

STEPS, FATAL = 12, 5

kind, backend, killed = sys.argv[1], sys.argv[2], Path(sys.argv[3])
local_rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local_rank % torch.cuda.device_count()) if kind == "cuda" else torch.device("cpu")
if kind == "cuda":
    torch.cuda.set_device(device)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
state = elastic.State(model=model, optimizer=optimizer, trained=torch.zeros(STEPS, device=device))


@elastic.run(backend=None if backend == "gloo" else backend)
def train(state: elastic.State) -> None:
    world = state.context
    net = state.ddp()
    print(
        f"group {world.round}: pid {os.getpid()} rank {world.rank} of {world.world_size} step {state.step}", flush=True
    )
    while state.step < STEPS:
        torch.manual_seed(100 * state.step + world.rank)
        optimizer.zero_grad()
        net(torch.randn(8, 16, device=device)).square().mean().backward()
        optimizer.step()
        state.trained[state.step] += 1
        if state.step == FATAL and world.rank == 1 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1, device=device))
        state.commit()
    parameters = sum(float(each.double().sum()) for each in model.parameters()).hex()
    counts = sorted({int(count) for count in state.trained.tolist()})
    held = {each.device.type for each in optimizer.state[next(model.parameters())].values() if each.dim()}
    print(f"ends at {parameters}; each step counts {counts}; optimizer on {sorted(held)}", flush=True)


train(state)
