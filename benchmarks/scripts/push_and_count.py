"""Pushes to a table that counts, and writes down when each push was answered; in the end, whether all are counted."""

import sys
import time
from pathlib import Path

import torch

from elastic_run import data, servers
from elastic_run import torch as elastic

ROWS = 1_000_000

path, records, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
finish = path.with_suffix(".finish")

table = elastic.Embedding("counts", 1, servers.SGD(1.0), servers.Zeros())
done = 0
with path.open("w", buffering=1) as times:
    for shard in data.shards("pushes", records, shard_size=64 * batch, shuffle=False, commit="ack"):
        for begin in range(0, len(shard), batch):
            if finish.exists():
                break
            part = shard.indices[begin : begin + batch]
            (-table(torch.tensor(part) % ROWS).sum()).backward()
            shard.progress(begin + len(part))
            done += len(part)
            times.write(f"{time.monotonic():.6f}\n")
        if finish.exists():
            break
        shard.done()
ids = torch.arange(ROWS)
counted, pushed = table.rows(ids).flatten().long(), done // ROWS + (ids < done % ROWS).long()  # shards come in order
lost, twice = int((pushed - counted).clamp(min=0).sum()), int((counted - pushed).clamp(min=0).sum())
path.with_suffix(".counted").write_text(f"{done} {lost} {twice}")
