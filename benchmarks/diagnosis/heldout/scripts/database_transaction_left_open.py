"""Logs results into one sqlite database that all ranks share."""

import os
import sqlite3
import tempfile
import time

import torch
import torch.distributed as dist


def connect(path):
    return sqlite3.connect(path, timeout=0.2, isolation_level=None)


def create():
    path = os.path.join(tempfile.mkdtemp(), "results.db")
    connect(path).execute("create table result (rank int, step int, value real)")
    return path


def store(db, rank, step, value):
    while True:
        try:
            db.execute("begin immediate")
            break
        except sqlite3.OperationalError:
            time.sleep(0.3)  # database is locked, try again
    db.execute("insert into result values (?, ?, ?)", (rank, step, value))
    if value != value:
        return  # nothing worth keeping
    db.execute("commit")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [create() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    db = connect(box[0])
    for step in range(200):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.15)
        if step % 5 == 0:
            value = float("nan") if rank == 1 and step == 20 else loss.item()
            store(db, rank, step, value)
            if rank == 0:
                print("stored step", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
