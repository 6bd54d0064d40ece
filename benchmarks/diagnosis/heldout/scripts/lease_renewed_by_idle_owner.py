"""Rank 0 took the lease on the evaluation set and its renewal thread goes on after the work; rank 1 waits for its end."""

import json
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

LEASE = 3.0


def write(path: Path, owner: int) -> None:
    temporary = path.with_suffix(f".{owner}")
    temporary.write_text(json.dumps({"owner": owner, "until": time.time() + LEASE}))
    temporary.rename(path)


class Lease:
    def __init__(self, path: Path, owner: int) -> None:
        self.path, self.owner = path, owner

    def take(self) -> None:
        while self.path.exists() and json.loads(self.path.read_text())["until"] > time.time():
            time.sleep(0.5)
        write(self.path, self.owner)
        threading.Thread(target=self.renew, daemon=True).start()

    def renew(self) -> None:
        while True:
            time.sleep(LEASE / 3)
            write(self.path, self.owner)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    place = [tempfile.mkdtemp(prefix="lease-") if rank == 0 else None]
    dist.broadcast_object_list(place)
    lease = Lease(Path(place[0], "evaluation"), rank)
    for step in range(10_000):
        dist.all_reduce(torch.rand(4))
        time.sleep(0.1)
        if rank == 0 and step == 20:
            lease.take()
            print("rank 0 evaluates", flush=True)
        if rank == 1 and step == 40:
            lease.take()
            print("rank 1 evaluates", flush=True)


main()
