"""`python -m benchmarks.alone`: three nodes work on leased shards, and one of them is killed again and again.

Another comes for each. Beside each other in one run: a role that shares no process group (`on-loss=one`), and one whose
workers all restart. One run each on two cores, load 8 to 11, before leases outlived rounds and after:

                           on-loss=one, before   on-loss=one, after   on-loss=all, after
    records a second                       388                  442                  382
    longest standstill, s                 2.29                 0.18                 2.44

Without a loss there are 600 records a second. With `on-loss=one` what is missing is the lost worker's own share, until
another node has come and loaded its model.
"""

import contextlib
import itertools
import math
import os
import signal
import time
from pathlib import Path

from . import contest, report
from .arena import Arena, DidNotCome, adopt_orphans, free_port
from .case import Case, Outcome
from .launchers import SCRIPTS, Job, Launcher, command
from .nodes import START_BOUND

NODES, LOSSES, EVERY = 3, 4, 5.0
RECORDS, SHARD = 12_000, 10
PACE = NODES / 0.005
BOUND = 150.0
LOOK = 0.05

ROLES = f"--roles=worker:2:{NODES}"
ALONE = Launcher("elastic-run, on-loss=one", "elastic-run", words=(ROLES, "--role-options=worker:on-loss=one"))
TOGETHER = Launcher("elastic-run, on-loss=all", "elastic-run", words=(ROLES,))


def _measured(arena: Arena, launcher: Launcher, _: int) -> Outcome:
    script = (str(SCRIPTS / "lease_slowly.py"), arena.word, str(RECORDS), str(SHARD))
    job, done = Job(arena.job_id, "", 1, free_port(), script), arena.folder / "done"

    def add(node: int) -> int:
        words = [word for word in command(launcher, job, node, arena.folder) if not word.startswith("--nnodes")]
        base = arena.environment(launcher) | {"BENCHMARK_NODE": str(node)}
        return arena.start(words, base, f"node{node}.log").pid

    def nodes() -> set[str]:
        return {line[1] for line in _lines(done)}

    try:
        pids = [add(0)]
        arena.until_listening(job.port or 0)
        pids += [add(node) for node in range(1, NODES)]
        arena.until(lambda: nodes() >= set(map(str, range(NODES))) or None, START_BOUND, LOOK)
        begun = time.monotonic()
        for turn in range(1, LOSSES + 1):
            arena.until(lambda turn=turn: time.monotonic() >= begun + turn * EVERY or None, EVERY * 2, LOOK)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[-1], signal.SIGKILL)  # the first one has the store, and is never lost
            pids.append(add(len(pids)))
        arena.until(lambda: len({line[3] for line in _lines(done)}) >= RECORDS // SHARD or None, BOUND, LOOK)
    except DidNotCome as error:
        return Outcome(None, str(error))
    told = _lines(done)
    times = sorted(float(line[0]) for line in told)
    own = sorted(float(line[0]) for line in told if line[1] == "0")
    seconds = times[-1] - times[0]
    still = max(later - before for before, later in itertools.pairwise(own))
    again = (len(told) - RECORDS // SHARD) * SHARD
    return Outcome(seconds, phases=(RECORDS / seconds, still, float(again)))


def _lines(done: Path) -> list[list[str]]:
    return [line.split() for line in done.read_text(encoding="utf-8").splitlines()] if done.exists() else []


CASE = Case(
    name="alone",
    title=f"{RECORDS:,} leased records on {NODES} nodes, of which one is killed every {EVERY:g} s, {LOSSES} times",
    about=f"A record is a sleep of 5 ms, shards have {SHARD}, commit='ack'. A worker loads its model for 2 s, a sleep, "
    "too. SIGKILL of an agent, and another node is started at once. Without a loss there are "
    f"{PACE:g} records a second. The standstill is the longest pause between two shards on the node that is never "
    "killed; a shard takes 0.05 s.",
    until="last record",
    bound=BOUND,
    ours=ALONE,
    peers=(TOGETHER,),
    measure=_measured,
    phases=("records a second", "longest standstill, s", "records done again"),
    first_phase="",
    parts="median of",
)


if __name__ == "__main__":
    adopt_orphans()
    print(report.text(contest.run(CASE, 1, deadline=math.inf, keep=None, say=print)))
