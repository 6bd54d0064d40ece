"""Training whose weights are the same at any world size, with the state of each step in memory.

Each rank writes a line into `--log` for every step that `commit()` has returned for, with a hash of the weights, and
one for the step after which it goes on. What a step computes is whole numbers, so that sums are exact in any order.

With `--shards`, several ranks train pieces of the model (FSDP2), and one rank the whole of it.

With `--holds`, rank 0 waits for the test before the last step; the others wait for it in their collective.
"""

import argparse
import hashlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import puppet
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

import elastic_run
from elastic_run.adapters.torch import memory_slots
from elastic_run.torch import Checkpoint

BATCH = 12
"""Records of all ranks in one step."""


class Position:
    """The next record."""

    def __init__(self) -> None:
        self.next = 0

    def state_dict(self) -> Mapping[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.next = state["next"]


def die_inside_copies(step: int) -> None:
    """This process dies in the copy of that step, after the tensors and before the header."""
    complete = memory_slots.complete_generation

    def complete_or_die(buffer: Any, round: int, now: int, *rest: Any) -> int:
        if now == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return complete(buffer, round, now, *rest)

    memory_slots.complete_generation = complete_or_die


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--persist", type=float)
    parser.add_argument("--holds", action="store_true")
    parser.add_argument("--shards", action="store_true")
    parser.add_argument("--dies-inside", type=int, nargs="*", default=[], help="in the nth round, at which step")
    options = parser.parse_args()

    here = elastic_run.context()
    test = puppet.connect() if "PUPPET" in os.environ else None
    if here.world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(options.width, options.width), torch.nn.Linear(options.width, 4))
    model = model.double()
    in_pieces = options.shards and here.world_size > 1
    if in_pieces:
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.9)
    data = Position()
    checkpoint = Checkpoint(
        options.checkpoint,
        memory=1,
        persist_every=options.persist,
        model=model,
        optimizer=optimizer,
        schedule=schedule,
        data=data,
    )
    log = os.open(f"{options.log}.{here.node}.{here.rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(word: str, step: int) -> None:
        whole: list[Any] = [each.detach() for each in model.parameters()]
        flat = torch.cat([(each.full_tensor() if in_pieces else each).reshape(-1) for each in whole])
        found = hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]
        os.write(log, f"{here.round} {here.world_size} {word} {step} {found} {data.next}\n".encode())

    safe: int | None = None
    checkpoint.restore()
    tell("restored", checkpoint.step)
    if test:
        test.say("begins")
    for round, step in enumerate(options.dies_inside, start=1):
        if round == here.round and here.rank == 0:
            die_inside_copies(step)
    while checkpoint.step < options.steps:
        if test and here.rank == 0 and options.holds and checkpoint.step == options.steps - 1:
            test.hold("the last step")
        share = BATCH // here.world_size
        first = data.next + here.rank * share
        total = torch.arange(first, first + share).sum().double()
        if here.world_size > 1:
            dist.all_reduce(total)
        for index, each in enumerate(model.parameters(), start=1):
            gradient: Any = torch.arange(each.numel(), dtype=torch.float64).reshape(each.shape) % 97 * index + total
            if isinstance(each, DTensor):
                gradient = distribute_tensor(gradient, each.device_mesh, each.placements)
            each.grad = gradient
        optimizer.step()
        schedule.step()
        data.next += BATCH
        checkpoint.commit()
        tell("committed", checkpoint.step)
        copies = checkpoint._copies  # the public word of it is that of `elastic-run status`
        if copies is not None and (replication := copies.replication) and replication.safe not in (None, safe):
            if safe is None and test:
                test.say("replicated")
            safe = replication.safe
            tell(f"safe:{safe}", checkpoint.step)
    if options.persist:
        checkpoint.save()
    if here.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
