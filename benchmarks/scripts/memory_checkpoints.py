"""What it costs to keep each step: `memory`, `file`, `save`, `plain` or `leased-N`, MB of parameters, steps.

Each rank writes its answer where it runs, and its last argument is there to be another one in each run.
"""

# torch annotates itself only in part:
# pyright: basic

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn

import elastic_run
from elastic_run.torch import Checkpoint

WARM_STEPS = 10
WIDTH = 1024


def main() -> None:
    kind, megabytes, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    width = WIDTH if megabytes else 8
    layers = max(1, round(megabytes * (1 << 20) / (4 * width * width)))
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    net = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    file = Path(f"/dev/shm/elastic-run-benchmark-{os.getppid()}.pt")
    total = WARM_STEPS + steps
    shard: elastic_run.data.Shard | None = None
    data = None

    keep: Callable[[], object]
    if kind == "memory":
        keep = Checkpoint(file, memory=1, model=model, optimizer=optimizer).commit
    elif kind == "file":
        keep = Checkpoint(file, every=1, model=model, optimizer=optimizer).commit
    elif kind.startswith("leased"):
        data = elastic_run.data.shards("train", 40_000 * total, shard_size=5_000)
        memory = int(kind.partition("-")[2]) or None
        every = None if memory else 10**9
        keep = Checkpoint(file, every=every, memory=memory, model=model, optimizer=optimizer, data=data).commit
    elif kind == "save" and dist.get_rank() == 0:

        def keep() -> None:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    else:
        keep = int

    begun = inside = 0.0
    for step in range(total):
        if step == WARM_STEPS:
            dist.barrier()
            begun, inside = time.perf_counter(), 0.0
        if data is not None:
            shard = next(data)
        optimizer.zero_grad()
        net(torch.randn(8, width)).square().mean().backward()
        optimizer.step()
        if shard is not None:
            shard.done()
        before = time.perf_counter()
        keep()
        inside += time.perf_counter() - before
    found = {"seconds": time.perf_counter() - begun, "inside": inside}
    dist.barrier()
    if dist.get_rank() == 0:
        file.unlink(missing_ok=True)
    answer = Path(f"answer{dist.get_rank()}")
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(answer)
    if data is not None:
        data.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
