"""The script of `ddp_steps.py`, changed so that its workers keep their process; it writes the same journal.

A generation is one process group. The instants of a worker's way to its first step are those of its process where it is
new, and that of the process group where it has stayed.
"""

# torch annotates itself only in part:
# pyright: basic

import time

FIRST_LINE = time.monotonic_ns()

import os  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from elastic_run import torch as elastic  # noqa: E402

IMPORTED = time.monotonic_ns()

STEP_SECONDS = 0.02
STEPS = 30_000


def main(journal: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    state = elastic.State(model=model, optimizer=optimizer)
    out = os.open(journal, os.O_WRONLY | os.O_APPEND)  # one write per line: lines of several ranks do not mix
    way = [FIRST_LINE, IMPORTED]

    @elastic.run
    def train(state: elastic.State) -> None:
        joined = time.monotonic_ns()
        net = state.ddp()
        rank, world = state.context.rank, state.context.world_size
        built = time.monotonic_ns()
        named = torch.tensor([time.monotonic_ns()], dtype=torch.int64)
        dist.broadcast(named, src=0)
        generation = int(named.item())
        told = " ".join(map(str, (*(way or (joined, joined)), joined, built, built)))
        way.clear()
        os.write(out, f"born {generation} {rank} {world} {os.getpid()} {told}\n".encode())
        while state.step < STEPS:
            began = time.monotonic()
            loss = nn.functional.cross_entropy(net(torch.randn(32, 64)), torch.randint(10, (32,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.commit()
            os.write(out, f"step {generation} {rank} {world} {state.step} {time.monotonic_ns()}\n".encode())
            time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))  # as if there were more to compute

    train(state)


if __name__ == "__main__":
    main(sys.argv[1])
