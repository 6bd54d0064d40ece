"""Ranks in step, with the rows of two tables on servers: one counts ids, the other has gradients of all digits.

At the end rank 0 prints what is counted, in the table and in the State or checkpoint, and a fingerprint of all rows.
The gradient of a rank is divided by the number of ranks, so the loss of the counting table has it as a factor.

With `--die ROUND:STEP:WHEN:RANK ...` that rank kills itself in that round at that step: "before" the commit, when it
has "prepared" its part, when all have ("agreed"), when none can undo it any more ("decided"), when it is "applied", or
"after" the commit. Step 0 is the first that the round makes.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from elastic_run import servers
from elastic_run import torch as elastic
from elastic_run.adapters.client import pushes

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=230)
parser.add_argument("--batch", type=int, default=5)
parser.add_argument("--fixed", type=int)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--every", type=int, help="steps from one checkpoint file to the next; without it, in place")
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--die", nargs="*", default=[])
options = parser.parse_args()

HURRY = Path("hurry")
counts = elastic.Embedding("counts", 1, servers.SGD(1.0), servers.Zeros())
digits = elastic.Embedding("digits", 3, servers.Adam(0.1), servers.Normal(0.1))
torch.manual_seed(1)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = elastic.ElasticBatchSampler(
    options.size, options.batch, epochs=options.epochs, fixed_global_batch=options.fixed, seed=3
)
made = 0


def die(when: str) -> None:
    here = elastic_context()
    if f"{here.round}:{made}:{when}:{here.rank}" in options.die:
        print(f"dies {when}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def elastic_context() -> Any:
    import elastic_run

    return elastic_run.context()


def dies_in(part: Any, name: str, before: str, after: str) -> None:
    """In that part of a commit."""
    inner: Callable[..., None] = getattr(part, name)

    def outer(*words: Any) -> None:
        die(before)
        inner(*words)
        die(after)

    setattr(part, name, outer)


dies_in(pushes.registered[0], "prepare_step", "before", "prepared")
dies_in(sampler, "_commit_step", "", "agreed")
dies_in(pushes.registered[0], "apply_step", "decided", "applied")


def make_steps(net: nn.Module, seen: torch.Tensor, commit: Callable[[], None]) -> None:
    """To the end of all epochs."""
    global made
    made, world = 0, elastic_context().world_size
    while sampler.epoch < options.epochs:
        epoch, batches = sampler.epoch, iter(sampler)
        while sampler.epoch == epoch:
            optimizer.zero_grad()
            batch_counts = torch.zeros_like(seen)
            weights = sampler.weights
            for weight in weights:
                batch = torch.tensor(next(batches))
                if weight:
                    batch_counts[batch] += 1
                    (-world * counts(batch).sum()).backward()
                (weight * net(digits(batch % 40)).square().mean()).backward()
            if world > 1:
                dist.all_reduce(batch_counts)
            optimizer.step()
            seen += batch_counts
            commit()
            die("after")
            made += 1
            if options.pause:
                print(f"step {sampler.step}", flush=True)
                time.sleep(0 if HURRY.exists() else options.pause)


def tell(seen: torch.Tensor) -> None:
    found = counts.rows(torch.arange(options.size)).flatten()
    rows = digits.rows(torch.arange(40))
    mark = sha256(rows.numpy().tobytes() + model.weight.detach().numpy().tobytes()).hexdigest()[:16]
    print(f"counted {sorted(set(found.tolist()))} seen {sorted(set(seen.tolist()))} mark {mark}", flush=True)


def train_in_place() -> None:
    state = elastic.State(
        model=model, optimizer=optimizer, data=sampler, seen=torch.zeros(options.size, dtype=torch.int64)
    )

    @elastic.run
    def train(state: elastic.State) -> None:
        make_steps(state.ddp(), state.seen, state.commit)

    train(state)
    if state.context.rank == 0:
        tell(state.seen)


def train_from_files() -> None:
    dist.init_process_group("gloo")
    counted = nn.Module()
    counted.register_buffer("seen", torch.zeros(options.size, dtype=torch.int64))
    seen: Any = counted.seen
    checkpoint = elastic.Checkpoint(
        "run.pt", every=options.every, model=model, optimizer=optimizer, data=sampler, counted=counted
    )
    checkpoint.restore()

    def commit() -> None:
        sampler.commit()
        checkpoint.commit()

    make_steps(nn.parallel.DistributedDataParallel(model), seen, commit)
    if dist.get_rank() == 0:
        tell(seen)
    dist.barrier()


(train_from_files if options.every else train_in_place)()
