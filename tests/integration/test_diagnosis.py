"""Real workers that stand still: who is named, what is done about it, and who is not named."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.diagnosis.heldout.__main__ import run_all
from benchmarks.diagnosis.heldout.cases import MORE_FAULTS, MORE_INNOCENTS, MOVED

from ..sampling import SOAK, sample
from .cluster import SCRIPTS, Cluster
from .commands import asked

VICTIM = Path(__file__).parents[2] / "benchmarks" / "diagnosis" / "scripts" / "victim.py"


def start(job: Cluster, tmp_path: Path, fault: str, rank: int, **flags: str | int | None) -> None:
    """Four ranks on two nodes; it happens to `rank` at its fifth step."""
    args = (fault, str(rank), "5", "1", str(tmp_path / "journal"))
    flags = {"nnodes": 2, "nproc_per_node": 2, "hang_timeout": 2, **flags}
    job.start("A", "B", script=VICTIM, args=args, **flags)
    job.wait_for_line("A", "round 1: 2 nodes")


def test_a_rank_that_sleeps_is_named_and_the_job_fails_if_it_is_told_to(job: Cluster, tmp_path: Path) -> None:
    start(job, tmp_path, "sleep_for_ever", 2, on_hang="fail")
    assert job.finish() == {"A": 1, "B": 1}
    for node in "AB":
        assert "the job makes no progress (--on-hang=fail): rank 2 on node" in job.last_lines(node)
        assert "sleeps (" in job.last_lines(node)


def test_a_rank_in_a_deadlock_is_killed_and_the_job_goes_on_if_it_is_told_to(job: Cluster, tmp_path: Path) -> None:
    start(job, tmp_path, "lock_twice", 1, on_hang="restart", max_restarts=1)
    job.wait_for_line(
        job.master(), r"rank is proven.* rank 1: waits for a lock of its own process; victim.py:\d+ in lock"
    )
    line = job.wait_for_line(job.master(), r"diagnosis: rank 1 on node \w+ waits for a lock.*ranks 0, 2-3 wait")
    assert line
    assert job.finish() == {"A": 0, "B": 0}


def test_a_stopped_rank_is_named_until_it_goes_on(job: Cluster, tmp_path: Path) -> None:
    start(job, tmp_path, "stopped", 3)
    job.wait_for_line(job.master(), r"diagnosis: rank 3 on node \w+ is stopped by a signal")
    job.wait_for_line(job.master(), r"\| rank 3: step 5")
    told = json.loads(asked(job, "--json").stdout)["diagnosis"]
    assert [(each["finding"]["kind"], each["finding"]["rank"], each["domain"]) for each in told] == [
        ("stopped", 3, "host")
    ]
    assert "a restart helps; evidence: certain" in asked(job).stdout
    os.kill(job.worker_pid(3), signal.SIGCONT)
    assert job.finish() == {"A": 0, "B": 0}


def test_a_rank_that_evaluates_for_long_is_not_named(job: Cluster, tmp_path: Path) -> None:
    start(job, tmp_path, "evaluation", 0)
    assert job.finish() == {"A": 0, "B": 0}
    assert [line for node in job.nodes.values() for line in node.lines if "diagnosis: " in line] == []


def test_a_rank_whose_wait_a_signal_ends_is_not_named(job: Cluster, tmp_path: Path) -> None:
    start(job, tmp_path, "alarm", 1, on_hang="fail")
    told = job.wait_for_line(job.master(), r"diagnosis: (?:no rank is proven|rank).*").group()
    assert "no rank is proven to be the cause" in told
    assert re.search(r"rank 1: waits for a lock, a queue, a thread or an event; Event.wait\(\), victim.py", told), told
    assert job.finish() == {"A": 0, "B": 0}


def test_a_standby_takes_the_place_of_a_slow_node(job: Cluster) -> None:
    flags = {"nnodes": 2, "hang_timeout": 2, "on_straggler": "replace", "max_restarts": 0}
    job.start("A", script=SCRIPTS / "slow_node.py", args=(), **flags)
    job.start("B", env={"SLOW": "0.3"})
    job.wait_for_line("A", "round 1: 2 nodes")
    job.start("C")
    job.wait_for_line("B", r"this node leaves the job: a standby takes its place: rank \d on node B computes")
    assert job.finish() == {"A": 0, "B": 143, "C": 0}
    line = job.wait_for_line("C", "round 2: 2 -> 2 nodes.*").group()
    assert "node B left: a standby takes its place: rank" in line


@pytest.mark.timeout(7200 if SOAK else 400)
async def test_of_the_held_out_corpus_no_innocent_is_named_and_no_wrong_rank(tmp_path: Path) -> None:
    """A sample of those that were run before; `python -m benchmarks.diagnosis.heldout` runs all."""
    cases = [each for each in (*MORE_FAULTS, *MORE_INNOCENTS) if each.name not in MOVED]
    drawn = sample([each.name for each in cases], 3, "held-out cases")
    chosen = [each for each in cases if each.name in drawn]
    trials = await run_all(chosen, sys.executable, tmp_path, 3)
    assert [trial for trial in trials if trial.named and not trial.right] == []
