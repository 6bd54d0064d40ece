"""`python -m benchmarks.async_convergence`: does a model trained by asynchronous workers get as good as by synchronous?

A factorization machine with all its parameters on two servers takes one pass over made-up clicks (`click_records.py`,
among the examples), and its AUC on the records that follow is measured. Each kind of job is run with the same seeds:

- synchronous, as N workers: one worker with N times the batch, which waits for each push before it pulls again. That is
  what N workers compute, step for step, who wait for each other.
- asynchronous: N workers who know nothing of each other, each with its rows fetched one step ahead.
- the same with 2, 4 and 2 workers: two nodes join in the middle, later one leaves in order, and one is killed.

What is printed are means over the seeds, and of paired differences, with the standard error. The default takes some
minutes on two cores; `--records 2000000 --test 2000000 --seeds 5` is the full size.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .arena import Arena, DidNotCome, adopt_orphans, free_port
from .launchers import SCRIPTS, Job, Launcher, command

EXAMPLES = Path(__file__).parent.parent / "examples"
BATCH, SHARD = 256, 2048
BOUND, LOOK = 1800.0, 0.05

MOST_RECORDS = 2**24
"""That float32 counts one by one."""

JOIN, LEAVE, LATEST = 0.1, 0.5, 0.9
"""Shares of the records: when two nodes join, and when they leave again, at the earliest and at the latest."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to train.

    Attributes:
        name: of it.
        workers: at first.
        batch: records in a step.
        ahead: rows are fetched ahead.
        changes: two more workers come, and go.
    """

    name: str
    workers: int
    batch: int
    ahead: bool = False
    changes: bool = False


SYNC_1 = Kind("synchronous, as 1 worker", 1, BATCH)
SYNC_2 = Kind("synchronous, as 2 workers", 1, 2 * BATCH)
ASYNC_1 = Kind("asynchronous, 1 worker", 1, BATCH, ahead=True)
ASYNC_2 = Kind("asynchronous, 2 workers", 2, BATCH, ahead=True)
CHANGING = Kind("asynchronous, 2 to 4 to 2 workers", 2, BATCH, ahead=True, changes=True)
KINDS = (SYNC_1, ASYNC_1, SYNC_2, ASYNC_2, CHANGING)
PAIRS = ((ASYNC_1, SYNC_1), (ASYNC_2, SYNC_2), (CHANGING, SYNC_2), (SYNC_2, SYNC_1))


@dataclass(frozen=True, slots=True)
class Size:
    """Of each job: records to train on and to test with."""

    records: int
    test: int


class TrainingJob:
    """One job. Raises DidNotCome where it does not get on."""

    def __init__(self, arena: Arena, kind: Kind, size: Size, seed: int) -> None:
        self._arena, self._kind, self._size = arena, kind, size
        script = [str(SCRIPTS / "clicks_on_servers.py"), str(arena.folder), f"--records={size.records}"]
        script += [f"--test={size.test}", f"--batch={kind.batch}", f"--shard={SHARD}", f"--seed={seed}"]
        script += ["--ahead"] if kind.ahead else []
        self._job = Job(arena.job_id, "", 1, free_port(), tuple(script))
        most = kind.workers + 2 * kind.changes
        roles = (f"--roles=worker:{kind.workers}:{most}", "--role-options=worker:on-loss=one", "--servers=2")
        self._launcher = Launcher("elastic-run", "elastic-run", words=roles)
        self._nodes: list[subprocess.Popen[bytes]] = []

    def _add_node(self) -> None:
        number = len(self._nodes)
        words = command(self._launcher, self._job, number, self._arena.folder)
        words = [word for word in words if not word.startswith("--nnodes")]
        base = self._arena.environment(self._launcher)
        path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH", "")]))
        more = {"BENCHMARK_NODE": str(number), "PYTHONPATH": path}
        self._nodes.append(self._arena.start(words, base | more, f"node{number}.log"))

    def _done(self) -> list[tuple[int, int]]:
        """Of each shard: whose it was, and its records."""
        path = self._arena.folder / "done"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(node), int(records)) for node, records in map(str.split, lines)]

    def _await_share(self, share: float, *nodes: int) -> float:
        """Until that share of the records is done, and these nodes have had a part in them; the share then."""

        def found() -> float | None:
            done = self._done()
            reached = sum(records for _, records in done) / self._size.records
            return reached if reached >= share and {node for node, _ in done}.issuperset(nodes) else None

        return self._arena.until(found, BOUND, LOOK)

    def train(self) -> tuple[float, int]:
        """The AUC, and how often a record was counted that should not have been, or was not."""
        self._add_node()
        self._arena.until_listening(self._job.port or 0)
        for _ in range(1, self._kind.workers):
            self._add_node()
        if self._kind.changes:
            self._await_share(JOIN)
            self._add_node()
            self._add_node()
            if (reached := self._await_share(LEAVE, 2, 3)) > LATEST:
                raise DidNotCome(f"{reached:.0%} were done when both new nodes had a part in them: take more records")
            self._nodes[2].send_signal(signal.SIGTERM)
            with contextlib.suppress(ProcessLookupError):
                self._arena.kill_tree(self._nodes[3])
        result = self._arena.folder / "result.json"
        self._arena.until(lambda: result.exists() or None, BOUND, LOOK)
        found = json.loads(result.read_text())
        return found["auc"], found["counted"] - self._size.records


def measure(kinds: Sequence[Kind], size: Size, seeds: int) -> dict[Kind, list[float]]:
    """AUCs of each kind, by seed."""
    found: dict[Kind, list[float]] = {kind: [] for kind in kinds}
    for seed in range(seeds):
        for kind in kinds:
            begun = time.monotonic()
            with Arena("async-convergence") as arena:
                auc, wrong = TrainingJob(arena, kind, size, seed).train()
            if wrong:
                raise DidNotCome(f"{kind.name}, seed {seed}: {wrong:+} records counted")
            seconds, load = time.monotonic() - begun, os.getloadavg()[0]
            print(f"seed {seed}, {kind.name}: AUC {auc:.4f} in {seconds:.0f} s, load {load:.1f}", flush=True)
            found[kind].append(auc)
    return found


def describe_mean(values: Sequence[float], sign: str = "") -> str:
    """With its standard error, where there are several."""
    error = f" ± {statistics.stdev(values) / math.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.4f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--test", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.records > MOST_RECORDS:
        parser.error(f"--records={options.records}: the table that counts them is exact up to {MOST_RECORDS}")
    adopt_orphans()
    size = Size(options.records, options.test)
    found = measure(KINDS, size, options.seeds)
    print(f"\n{size.records:,} records, AUC on {size.test:,} others, {options.seeds} seeds, {os.cpu_count()} cores")
    for kind in KINDS:
        print(f"{kind.name}: {describe_mean(found[kind])}")
    for one, other in PAIRS:
        apart = [a - b for a, b in zip(found[one], found[other], strict=True)]
        print(f"{one.name}, less {other.name}: {describe_mean(apart, '+')}")


if __name__ == "__main__":
    main()
