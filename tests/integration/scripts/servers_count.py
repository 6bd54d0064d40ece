"""Trains a table that counts ids, by leased shards; rank 0 prints what it has counted.

With `--die ROUND:PUSHES:WHEN ...` the first worker that has made so many pushes in that round kills itself: "before"
the next, "after" it (the ledger has not heard of it), or when it has marked the shard of one "done". The pauses of
`--pause` end where a file called hurry is there: the test has seen what it waited for.
"""

import argparse
import contextlib
import os
import signal
import time
from pathlib import Path

import torch

from elastic_run import data, servers
from elastic_run import torch as elastic

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int, default=6000)
parser.add_argument("--commit", default="ack")
parser.add_argument("--die", nargs="*", default=[])
parser.add_argument("--pause", type=float, default=0.0, help="seconds after each push, which is told")
options = parser.parse_args()

ROUND = os.environ["ELASTIC_RUN_ROUND"]
HURRY = Path("hurry")
pushes = 0


def die(when: str) -> None:
    deaths = (each.split(":") for each in options.die)
    if not any(death == [ROUND, death[1], when] and int(death[1]) <= pushes for death in deaths):
        return
    with contextlib.suppress(FileExistsError):
        os.close(os.open(f"died-{ROUND}-{when}", os.O_CREAT | os.O_EXCL))
        print(f"dies {when} push {pushes}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


table = elastic.Embedding("counts", 1, servers.SGD(1.0), servers.Zeros())
for shard in data.shards("d", options.records, shard_size=100, epochs=2, commit=options.commit):
    ids = torch.tensor(list(shard.indices))
    for begin in range(0, len(ids), 32):
        part = ids[begin : begin + 32]
        (-table(part).sum()).backward()
        die("before")
        shard.progress(begin + len(part))
        die("after")
        pushes += 1
        if options.pause:
            print(f"pushed {pushes}", flush=True)
            time.sleep(0 if HURRY.exists() else options.pause)
    shard.done()
    die("done")
if os.environ["RANK"] == "0":
    until = time.monotonic() + 60
    while True:  # until the others are done as well
        counted = table.rows(torch.arange(options.records)).flatten()
        if counted.sum() >= 2 * options.records or time.monotonic() > until:
            break
        time.sleep(0.1)
    print("counted", sorted(set(counted.tolist())), int(counted.sum()), flush=True)
