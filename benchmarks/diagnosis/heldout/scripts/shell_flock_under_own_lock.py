"""A rank holds a lock on the index while it calls a script, and the script takes the same lock with flock(1)."""

import fcntl
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

folder = tempfile.TemporaryDirectory()
LOCK = Path(folder.name, "index.lock")


def add_to_index(name: str) -> None:
    subprocess.run(["flock", str(LOCK), "sh", "-c", f"echo {name} >> {folder.name}/index"], check=True)


def publish(step: int) -> None:
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(folder.name, f"{step}.pt").write_bytes(b"weights")
        if step >= 60:
            add_to_index(f"{step}.pt")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 10_000):
        dist.all_reduce(torch.rand(100))
        time.sleep(0.07)
        if rank == 0 and step % 20 == 0:
            publish(step)
            print("published", step, flush=True)


main()
