"""Training in place whose result is known: the same steps leave the same parameters, whatever happens to the ranks.

The model is nowhere but in the ranks' memory. A step's records follow from its number alone, and all is in float64, so
that another world changes no more than the last digits. `seen` counts how often the model was trained on each record.

Each rank says at the beginning of a process group which step it had before, and which it goes on from. Between two
steps it runs what the test sends it. The job goes on until the file `limit` says which step is the last.

    train_in_place.py [SECONDS]     in each step it does nothing for so long
"""

import os
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from train import LIMIT, STEP_SECONDS, Test

from elastic_run import torch as elastic

SIZE = 240
BATCH = 12
NEVER = -1


def main() -> None:
    pause = STEP_SECONDS if len(sys.argv) == 1 else float(sys.argv[1])
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    records = torch.randn(SIZE, 8)
    sampler = elastic.ElasticBatchSampler(SIZE, BATCH, epochs=100_000, fixed_global_batch=BATCH)
    state = elastic.State(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.001),
        data=sampler,
        seen=torch.zeros(SIZE, dtype=torch.int64),
        limit=0,
    )
    had = NEVER

    @elastic.run
    def train(state: elastic.State) -> None:
        nonlocal had
        net, rank = state.ddp(), dist.get_rank()
        who = f"rank {rank} of {dist.get_world_size()} at {os.environ['MASTER_PORT']}"
        print(f"group {state.context.round}: {who} had step {had} and goes on after step {state.step}", flush=True)
        test = Test()
        while not 0 < state.limit <= state.step:
            for _ in epoch(net, rank, test):
                had = state.step
                if 0 < state.limit <= state.step:
                    break

    def epoch(net: nn.Module, rank: int, test: Test) -> Iterator[None]:
        """Trains until the end of an epoch, step by step."""
        batches, number = iter(sampler), sampler.epoch
        while sampler.epoch == number:
            test.obey()
            state.optimizer.zero_grad()
            counts = torch.zeros_like(state.seen)
            for weight in sampler.weights:
                batch = next(batches)
                counts[batch] += 1
                (net(records[batch]).pow(2).mean() * weight).backward()
            last = int(LIMIT.read_text()) if rank == 0 and LIMIT.exists() else 0
            shared = torch.cat([counts, torch.tensor([last])])
            dist.all_reduce(shared)
            state.optimizer.step()
            state.seen += shared[:-1]
            state.limit = int(shared[-1])
            time.sleep(pause)
            state.commit()
            if rank == 0 and state.step % 10 == 0:
                print(f"step {state.step}", flush=True)
            yield

    train(state)
    mark = sum(parameter.abs().sum().item() for parameter in model.parameters())
    times = state.seen.sum().item(), state.seen.min().item(), state.seen.max().item()
    print(f"ends after {state.step} steps: trained on records {times}, parameters {mark!r}", flush=True)


if __name__ == "__main__":
    main()
