"""Trains a table that counts ids, within a bound of staleness, and logs what its clock says: a file for each process.

A line is when (`time.monotonic_ns`, one clock for all processes of a machine), what, this worker's clock, and the
lowest clock that it knows. "acked": a push has been, and nobody has heard of it yet. "begins": a step. "works" and
"rests": others wait for this worker from now on, and do not.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch

from elastic_run import data, servers
from elastic_run import torch as elastic
from elastic_run.adapters.servers.session import session
from elastic_run.adapters.servers.step_clock import StepClock

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int, default=6000)
parser.add_argument("--bound", type=int)
parser.add_argument("--pauses", default="{}", help="seconds of a step, by node, as JSON")
options = parser.parse_args()

NODE, RANK = os.environ.get("PUPPET_NODE", os.environ["RANK"]), os.environ["RANK"]
log = Path(f"clock-{NODE}-{os.getpid()}.jsonl")


class LoggedClock(StepClock):
    def note(self, what: str, clock: int) -> None:
        with log.open("a") as file:
            file.write(json.dumps([time.monotonic_ns(), what, clock, self.lowest]) + "\n")

    def begin_work(self) -> None:
        before = self._works
        super().begin_work()
        if not before:
            self.note("works", self.clock)

    def rest(self) -> None:
        if self._works:
            self.note("rests", self.clock)
        super().rest()

    def count_push(self) -> None:
        self.note("acked", self.clock + 1)
        super().count_push()

    def await_step(self, bound: int) -> None:
        super().await_step(bound)
        self.note("begins", self.clock)


table = elastic.Embedding("counts", 1, servers.SGD(1.0), servers.Zeros(), max_staleness=options.bound)
if clock := session().clock:
    clock.__class__ = LoggedClock
pause, pushes = json.loads(options.pauses).get(NODE, 0.0), 0
for shard in data.shards("d", options.records, shard_size=100, epochs=2, commit="ack"):
    ids = torch.tensor(list(shard.indices))
    for begin in range(0, len(ids), 32):
        part = ids[begin : begin + 32]
        (-table(part).sum()).backward()
        time.sleep(pause)
        shard.progress(begin + len(part))
        pushes += 1
        if pushes % 10 == 0:
            print(f"node {NODE} rank {RANK} pid {os.getpid()} pushed {pushes}", flush=True)
    shard.done()
until = time.monotonic() + 60
while True:  # until the others are done as well
    counted = table.rows(torch.arange(options.records)).flatten()
    if counted.sum() >= 2 * options.records or time.monotonic() > until:
        break
    time.sleep(0.1)
print("counted", sorted(set(counted.tolist())), int(counted.sum()), flush=True)
