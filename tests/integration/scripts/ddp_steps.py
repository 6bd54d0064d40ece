"""A DDP script whose result is known exactly: every step adds 1 to the only weight, however many ranks there are.

Each step is checkpointed by rank 0, so after any faults the weight and the step count must both be `--steps`. At each
of `--hold` rank 0 waits for the test, and the other ranks wait for rank 0 in their collective.
"""

import argparse
import os
from pathlib import Path

import puppet
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    nn.init.zeros_(model.module.weight)
    step = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True)
        model.module.load_state_dict(state["model"])
        step = state["step"]
    print(f"rank {rank} begins at step {step}", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    test = puppet.connect()
    while step < options.steps:
        optimizer.zero_grad()
        (-model(torch.ones(1, 1))).sum().backward()
        optimizer.step()
        step += 1
        if rank == 0:
            part = options.checkpoint.with_suffix(f".{os.getpid()}.part")
            torch.save({"model": model.module.state_dict(), "step": step}, part)
            part.rename(options.checkpoint)
            if step in options.hold:
                test.hold(f"step {step}")
    print(f"rank {rank} ends after {step} steps with weight {model.module.weight.item():g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
