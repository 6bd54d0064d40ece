"""Writes metrics into a SQLite database; an administrator's script backs it up now and then."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BACKUP = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin exclusive")
time.sleep(15)
connection.execute("commit")
"""


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    path = os.path.join(tempfile.mkdtemp(), "metrics.db")
    database = sqlite3.connect(path, timeout=120)
    database.execute("create table metrics (step integer, loss real)")
    database.commit()
    backup = None
    for step in range(40):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if rank == 2 and step == 20:
            backup = subprocess.Popen([sys.executable, "-c", BACKUP, path])
            time.sleep(1)
        with database:
            database.execute("insert into metrics values (?, ?)", (step, loss.item()))
        if step % 10 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    if backup:
        backup.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
