"""Rank 1 waits for the lease of a job that died to run out, and goes on with the evaluation set."""

import json
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


def take(path: Path, owner: str, length: float) -> None:
    while path.exists() and (left := json.loads(path.read_text())["until"] - time.time()) > 0:
        print(f"leased for {left:.0f} s more", flush=True)
        time.sleep(4)
    path.write_text(json.dumps({"owner": owner, "until": time.time() + length}))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lease")
        path.write_text(json.dumps({"owner": "job-17", "until": time.time() + 22}))
        for step in range(100):
            if rank == 1 and step == 40:
                take(path, "job-18", 30)
            dist.all_reduce(torch.rand(3))
            time.sleep(0.05)
    dist.destroy_process_group()


main()
