"""The file by which the ranks find each other lies in a folder that one rank does not share."""

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shared = Path(tempfile.gettempdir()) / f"job-{os.environ['MASTER_PORT']}"
    if rank == 1:
        shared = shared / "scratch"  # its SLURM_TMPDIR is set
    shared.mkdir(parents=True, exist_ok=True)
    dist.init_process_group(
        "gloo", init_method=f"file://{shared}/rendezvous", rank=rank, world_size=world, timeout=timedelta(hours=2)
    )
    for step in range(10_000):
        dist.all_reduce(torch.rand(16))


main()
