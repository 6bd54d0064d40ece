"""Work on leased shards whose result is a table on parameter servers: how often each record was trained on.

Row i of the table is the number of times that record i was used. No worker waits for another. A byte in a file for each
push that was answered is what the test takes for steps.
"""

import argparse
import time
from pathlib import Path

import torch
from counting import may_finish, pause, tell, times, waited
from failpoint import reached
from train import Test

import elastic_run
from elastic_run import servers
from elastic_run import torch as elastic

PUSHES = Path("pushes")
PATIENCE = 120.0
"""Seconds that a worker without work waits until all records are counted."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--commit", default="ack")
    parser.add_argument("--shard-size", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=4)
    options = parser.parse_args()

    test = Test()
    here = elastic_run.context()
    table = elastic.Embedding("counts", 1, servers.SGD(1.0), servers.Zeros())
    print(f"rank {here.rank} of {here.world_size} begins", flush=True)
    sizes = {"shard_size": options.shard_size, "epochs": options.epochs}
    with elastic_run.data.shards("records", options.size, **sizes, commit=options.commit) as data:
        for shard in data:
            while shard.epoch == options.epochs - 1 and not may_finish():
                test.obey()
                waited()
                tell(pushes())
                pause()
            for begin in range(0, len(shard), options.batch_size):
                test.obey()
                part = shard.indices[begin : begin + options.batch_size]
                (-table(torch.tensor(part)).sum()).backward()
                reached(f"before a push, rank {here.rank}")
                shard.progress(begin + len(part))
                reached(f"between a push and the ledger, rank {here.rank}")
                with PUSHES.open("ab", buffering=0) as file:
                    file.write(b".")
                if not may_finish():
                    tell(pushes())
                pause()
            shard.done()
            reached(f"between done and the next request, rank {here.rank}")
    until = time.monotonic() + PATIENCE
    while (counts := count(table, options.size)).sum() < options.size * options.epochs and time.monotonic() < until:
        test.obey()
        time.sleep(0.1)  # a table tells nobody of its changes
    print(times(counts), flush=True)


def pushes() -> int:
    return PUSHES.stat().st_size if PUSHES.exists() else 0


def count(table: elastic.Embedding, size: int) -> torch.Tensor:
    counted = table.rows(torch.arange(size)).flatten()
    assert torch.equal(counted, counted.round()), "a record counts as a whole or not at all"
    return counted.to(torch.int64)


if __name__ == "__main__":
    main()
