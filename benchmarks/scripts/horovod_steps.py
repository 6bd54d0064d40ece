"""A plain `hvd.elastic` script: small steps, and a commit after each. It knows nothing of who started it.

Called with a journal to append to; see `journal.py` for its lines. Each entry into the training function is a
generation, which its rank 0 names.
"""

# horovod is not annotated:
# pyright: basic

import time

FIRST_LINE = time.monotonic_ns()

import os  # noqa: E402
import sys  # noqa: E402

# isort: off
import torch  # noqa: E402  # first, as in Horovod's own examples
from torch import nn  # noqa: E402
import horovod.torch as hvd  # noqa: E402
# isort: on

IMPORTED = time.monotonic_ns()

STEP_SECONDS = 0.02
STEPS = 30_000  # ten minutes: an end, should nobody kill it


def main(journal: str) -> None:
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    out = os.open(journal, os.O_WRONLY | os.O_APPEND)  # one write per line: lines of several ranks do not mix

    @hvd.elastic.run
    def train(state) -> None:
        rank, world = hvd.rank(), hvd.size()
        generation = int(hvd.broadcast(torch.tensor([time.monotonic_ns()]), 0, name="generation")[0])
        now = time.monotonic_ns()
        way = f"{FIRST_LINE} {IMPORTED} {now} {now} {now}"
        os.write(out, f"born {generation} {rank} {world} {os.getpid()} {way}\n".encode())
        while state.step < STEPS:
            began = time.monotonic()
            loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            os.write(out, f"step {generation} {rank} {world} {state.step} {time.monotonic_ns()}\n".encode())
            state.commit()
            time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))  # as if there were more to compute

    train(state)


if __name__ == "__main__":
    main(sys.argv[1])
