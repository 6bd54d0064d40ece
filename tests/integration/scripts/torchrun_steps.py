"""Counts steps that all ranks have made together, under torchrun, with a checkpoint after each.

Rank 0 waits for the test at each of `--hold`, and the others wait for it in their collective.
"""

import argparse
import os
import time
from pathlib import Path

import puppet
import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    now = torch.tensor([time.time_ns()])
    dist.broadcast(now, 0)
    os.environ["ELASTIC_RUN_ROUND"] = str(now.item())  # torchrun tells of none, and the test wants one that grows
    test = puppet.connect()
    step = int(options.checkpoint.read_text()) if options.checkpoint.exists() else 0
    print(f"rank {rank} of {world} begins at step {step}", flush=True)
    while step < options.steps:
        ranks = torch.ones(1)
        dist.all_reduce(ranks)
        assert ranks.item() == world
        step += 1
        if rank == 0:
            new = options.checkpoint.with_suffix(f".{os.getpid()}.part")
            new.write_text(str(step))
            new.rename(options.checkpoint)
            if step in options.hold:
                test.hold(f"step {step}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
