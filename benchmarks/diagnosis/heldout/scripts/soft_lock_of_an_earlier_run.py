"""The first rank unpacks under a lock file that a run on another machine has left behind."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import SoftFileLock


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"corpus-{os.environ['MASTER_PORT']}"
    if rank == 0:
        folder.mkdir(exist_ok=True)
        (folder / "unpack.lock").write_text("4711\nnode-17.cluster\n")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if rank == 0:
        with SoftFileLock(folder / "unpack.lock"):
            (folder / "done").touch()
    dist.barrier()
    for step in range(10_000):
        dist.all_reduce(torch.rand(16))


main()
