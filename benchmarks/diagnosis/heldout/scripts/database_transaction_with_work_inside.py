"""Rank 1 fills a table in one transaction; the others wait for SQLite's lock to add their rows."""

import os
import sqlite3
import tempfile
import time

import torch
import torch.distributed as dist


def fill(database: sqlite3.Connection, seconds: float) -> None:
    end, number = time.monotonic() + seconds, 0
    database.execute("BEGIN IMMEDIATE")
    while time.monotonic() < end:
        number += 1
        database.execute("INSERT INTO runs VALUES (?, ?)", (number % 3, hash(str(number))))
        database.execute("DELETE FROM runs WHERE rowid < (SELECT max(rowid) FROM runs) - 2000")
    database.execute("COMMIT")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [os.path.join(tempfile.mkdtemp(prefix="runs-"), "runs.db")]
    dist.broadcast_object_list(box, src=0)
    database = sqlite3.connect(box[0], timeout=600, isolation_level=None)
    if rank == 0:
        database.execute("CREATE TABLE runs (rank, value)")
    for step in range(60):
        dist.all_reduce(torch.ones(5))
        time.sleep(0.1)
        if step == 30:
            if rank == 1:
                fill(database, 13)
            else:
                time.sleep(0.5)
                database.execute("INSERT INTO runs VALUES (?, ?)", (rank, step))
        if step % 15 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
