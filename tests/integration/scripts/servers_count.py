"""Trains a table that counts ids, by leased shards; rank 0 prints what it has counted. By torch or numpy.

With `--by=dense` it is a parameter of a model on servers that counts all records, from what one worker begins with.

With `--die ROUND:PUSHES:WHEN ...` the first worker that has made so many pushes in that round kills itself: "before"
the next, "after" it (the ledger has not heard of it), or when it has marked the shard of one "done". At "exit" it ends
as if all were well, and rank 0 does not. The pauses of `--pause` end where a file called hurry is there: the test has
seen what it waited for.
"""

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elastic_run import data, servers

if TYPE_CHECKING:
    from elastic_run.torch import Records

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int, default=6000)
parser.add_argument("--commit", default="ack")
parser.add_argument("--by", choices=["torch", "numpy", "dense"], default="torch")
parser.add_argument("--die", nargs="*", default=[])
parser.add_argument("--loader", type=int, help="processes of an ElasticLoader; without it shards are looped over")
parser.add_argument("--stream", help="a folder of files whose lines are the ids; each counts once, not twice")
parser.add_argument("--pause", type=float, default=0.0, help="seconds after each push, which is told")
options = parser.parse_args()

ROUND = os.environ["ELASTIC_RUN_ROUND"]
HURRY = Path("hurry")
pushes = 0


def die(when: str) -> None:
    deaths = (each.split(":") for each in options.die)
    if not any(death == [ROUND, death[1], when] and int(death[1]) <= pushes for death in deaths):
        return
    if when == "exit" and os.environ["RANK"] == "0":
        return
    with contextlib.suppress(FileExistsError):
        os.close(os.open(f"died-{ROUND}-{when}", os.O_CREAT | os.O_EXCL))
        print(f"dies {when} push {pushes}", flush=True)
        if when == "exit":
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)


def declare_table() -> tuple[Callable[[list[int]], object], Callable[[np.ndarray], np.ndarray]]:
    """What computes the gradients of some ids, and what reads their rows."""
    if options.by == "torch":
        import torch

        from elastic_run.torch import Embedding

        module = Embedding("counts", 1, servers.SGD(1.0), servers.Zeros())
        return lambda ids: (-module(torch.tensor(ids)).sum()).backward(), lambda ids: module.rows(torch.from_numpy(ids))
    if options.by == "dense":
        return declare_parameter()
    table = servers.Table("counts", 1, servers.SGD(1.0), servers.Zeros())

    def push(ids: list[int]) -> None:
        table.push(ids, -np.ones_like(table.pull(ids)))

    return push, table.rows


def declare_parameter() -> tuple[Callable[[list[int]], object], Callable[[np.ndarray], np.ndarray]]:
    """As `declare_table`; all records count in each number, and more than one number says that they differ."""
    import torch

    from elastic_run.torch import on_servers

    unit = 1 << 20
    model = torch.nn.ParameterList([torch.full((3, 700), unit * float(os.environ["RANK"])), torch.zeros(1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    served = on_servers(model, optimizer)

    def use(ids: list[int]) -> None:
        optimizer.zero_grad()
        (-len(ids) * model[0].sum()).backward()
        optimizer.step()

    def read(_: np.ndarray) -> np.ndarray:
        served.pull()
        return np.unique(model[0].detach().numpy()) - unit * (model[0].max().item() // unit)

    return use, read


def loop_over_shards(source: data.Shards) -> Iterator[tuple[list[int], Callable[[], None]]]:
    """Ids, and what says that they are in the model."""
    for shard in source:
        ids = list(shard.indices)
        for begin in range(0, len(ids), 32):
            part = ids[begin : begin + 32]
            yield part, partial(shard.progress, begin + len(part))
        shard.done()
        die("done")


def loop_over_stream(source: data.StreamShards) -> Iterator[tuple[list[int], Callable[[], None]]]:
    """The same of a stream."""
    for shard in source:
        ids = [int(record.value) for record in shard.records]
        for begin in range(0, len(ids), 32):
            part = ids[begin : begin + 32]
            yield part, partial(shard.progress, begin + len(part))
        shard.done()
        die("done")


def read(records: "Records") -> Iterator[int]:
    """The ids."""
    return iter(records.indices)


def loop_over_batches(source: data.Shards) -> Iterator[tuple[list[int], Callable[[], None]]]:
    """The same of a loader of torch."""
    from elastic_run.torch import ElasticIterableDataset

    loader = ElasticIterableDataset(source, read).loader(32, num_workers=options.loader)
    for ids in loader:
        yield ids.tolist(), loader.commit


use, rows = declare_table()
if options.stream:
    lines = data.LineFiles(options.stream)
    loop = loop_over_stream(data.stream("d", lines, shard_size=500, follow=False, commit=options.commit))
else:
    source = data.shards("d", options.records, shard_size=100, epochs=2, commit=options.commit)
    loop = (loop_over_shards if options.loader is None else loop_over_batches)(source)
total = (1 if options.stream else 2) * options.records
for ids, commit in loop:
    use(ids)
    die("before")
    commit()
    die("after")
    die("exit")
    pushes += 1
    if options.pause:
        print(f"pushed {pushes}", flush=True)
        time.sleep(0 if HURRY.exists() else options.pause)
if os.environ["RANK"] == "0":
    until = time.monotonic() + 60
    while True:  # until the others are done as well
        counted = np.asarray(rows(np.arange(options.records))).ravel()
        if counted.sum() >= total or time.monotonic() > until:
            break
        time.sleep(0.1)
    print("counted", sorted(set(counted.tolist())), int(counted.sum()), flush=True)
