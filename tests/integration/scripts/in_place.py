"""Trains in place: it keeps its process, and the model in it, when workers and machines come and go.

Each rank prints a line for each process group and for each step. `seen` counts how often the model was trained on each
record, and lies nowhere but in the ranks' memory. At the end the ranks print whether the counts are right, and a
fingerprint of the parameters: every bit counts.

    --until PATH    it ends with an epoch after that is there, or with the last
    --late K        an all-reduce between the optimizer's step and the commit, as metrics have, in every Kth step
    --decorator     0: a loop of its own around the attempts
    --snap K        rank 0 cuts its connections in the first process group after step K, as a network may
    --saved PATH    it makes that on SIGTERM, and ends
    --tail PATH     as long as it is there, the script has something to do after the training
    --stuck PATH    as long as it is there, rank 1 waits for something and does not look up
    --busy PATH     as long as it is there, rank 1 computes and does not look up
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from elastic_run import torch as elastic

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=240)
parser.add_argument("--batch", type=int, default=12)
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--until", type=Path)
parser.add_argument("--pause", type=float, default=0.005)
parser.add_argument("--late", type=int, default=0)
parser.add_argument("--wide", type=int, default=16)
parser.add_argument("--decorator", type=int, default=1)
parser.add_argument("--snap", type=int)
parser.add_argument("--stuck", type=Path)
parser.add_argument("--busy", type=Path)
parser.add_argument("--tail", type=Path)
parser.add_argument("--saved", type=Path)
args = parser.parse_args()
if args.saved:
    signal.signal(signal.SIGTERM, lambda *_: (args.saved.touch(), sys.exit(1)))

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, args.wide), nn.Dropout(0.2), nn.ReLU(), nn.Linear(args.wide, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
records = torch.randn(args.size, 8, generator=torch.Generator().manual_seed(6))
sampler = elastic.ElasticBatchSampler(args.size, args.batch, epochs=args.epochs, fixed_global_batch=args.batch)
state = elastic.State(
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    data=sampler,
    seen=torch.zeros(args.size, dtype=torch.int64),
    losses=[],
)


def train(state: elastic.State) -> None:
    """To the end, or to the end of this process group."""
    net = state.ddp()
    world = state.context
    who = f"pid {os.getpid()} rank {world.rank} of {world.world_size}"
    print(f"group {world.round}: {who} from step {state.step}", flush=True)
    while sampler.epoch < args.epochs and not enough():
        epoch, batches = sampler.epoch, iter(sampler)
        while sampler.epoch == epoch:
            counts = torch.zeros_like(state.seen)
            optimizer.zero_grad()
            weights, accumulate = sampler.weights, sampler.accumulate
            for weight in weights:
                batch = next(batches)
                counts[batch] += 1
                # Dropout's masks are a function of the step, so that any world draws alike.
                torch.manual_seed(1000 + state.step)
                (net(records[batch]).pow(2).mean() * weight).backward()
            assert len(weights) == accumulate
            dist.all_reduce(counts)
            optimizer.step()
            if args.late and state.step % args.late == 0:
                dist.all_reduce(torch.ones(1))
            scheduler.step()
            state.seen += counts
            state.losses = [state.step]
            time.sleep(args.pause)
            if args.stuck and args.stuck.exists() and world.rank == 1:
                print("does not look up", flush=True)
                while args.stuck.exists():
                    time.sleep(0.01)
            if args.busy and args.busy.exists() and world.rank == 1:
                print("does not look up", flush=True)
                while args.busy.exists():
                    pass
            if world.round == 1 and world.rank == 0 and args.snap == state.step:
                cut_connections()
            state.commit()
            print(f"step {state.step}", flush=True)
        print(f"epoch {sampler.epoch}: {mark()}", flush=True)


def cut_connections() -> None:
    """All of this process that go to another."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as found:
            if found.family != socket.AF_UNIX and found.getpeername():
                found.shutdown(socket.SHUT_RDWR)


def enough() -> bool:
    """Whether somebody has seen that it is."""
    seen = torch.tensor(int(args.until is not None and args.until.exists()))
    dist.all_reduce(seen)
    return bool(seen)


def mark() -> str:
    """Every bit of the parameters."""
    return sum(parameter.double().sum().item() for parameter in model.parameters()).hex()


if args.decorator:
    elastic.run(train)(state)
else:
    for attempt in state.attempts():
        with attempt:
            train(state)
counts = sorted(set(state.seen.tolist()))
print(f"ends after step {state.step}: each record was trained on {counts} times; {mark()}", flush=True)
while args.tail and args.tail.exists():
    time.sleep(0.01)
