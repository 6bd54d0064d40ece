"""A rank has used up its budget and ends with code 0; the others look for the report that it owes them."""

import json
import pathlib
import sys
import tempfile
import time

import torch
import torch.distributed as dist


def report(folder: pathlib.Path, epoch: int, rank: int) -> None:
    part = folder / f"{epoch}.{rank}.tmp"
    part.write_text(json.dumps({"rank": rank, "lr": 0.1 / (epoch + 1)}))
    part.rename(part.with_suffix(".json"))


def collect(folder: pathlib.Path, epoch: int, ranks: int) -> float:
    rates = []
    for rank in range(ranks):
        path = folder / f"{epoch}.{rank}.json"
        while not path.exists():
            time.sleep(0.05)
        rates.append(json.loads(path.read_text())["lr"])
    return max(rates)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
names: list = [tempfile.mkdtemp(prefix="reports-")]
dist.broadcast_object_list(names, src=0)
folder, budget = pathlib.Path(names[0]), (40 if rank == 2 else 4_000)
dist.destroy_process_group()
for epoch in range(1_000):
    for _ in range(10):
        torch.rand(50, 50) @ torch.rand(50, 50)
        time.sleep(0.1)
        budget -= 1
    if budget <= 0:
        sys.exit()
    report(folder, epoch, rank)
    print(rank, epoch, collect(folder, epoch, world), flush=True)
