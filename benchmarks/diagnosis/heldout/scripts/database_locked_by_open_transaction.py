"""Results go to one SQLite file; a rank forgot to commit and trains on, another waits for the database."""

import os
import sqlite3
import tempfile
import time

import torch
import torch.distributed as dist


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=100_000, isolation_level=None)


def store(database: sqlite3.Connection, rank: int, step: int, commit: bool) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO results VALUES (?, ?)", (rank, step))
    if commit:
        database.execute("COMMIT")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [os.path.join(tempfile.mkdtemp(prefix="results-"), "results.db")]
    dist.broadcast_object_list(box, src=0)
    database = connect(box[0])
    if rank == 0:
        database.execute("CREATE TABLE results (rank, step)")
    dist.barrier()
    for step in range(100_000):
        dist.all_reduce(torch.ones(10))
        time.sleep(0.1)
        if step % 10 == rank:
            store(database, rank, step, commit=not (rank == 2 and step > 30))
        if rank == 1 and step % 10 == 0:
            print("step", step, flush=True)


main()
