"""`Checkpoint(memory=1)`, and SIGKILL to all workers of a job at once: no step is lost that `commit` returned for."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from ..sampling import SEED
from .cluster import SCRIPTS, Cluster

SCRIPT = SCRIPTS / "memory_checkpoint.py"
SECONDS = 120.0
STEPS = 120
KILLS = 10
LONGEST = 0.4
"""Seconds from the first step of a round until all workers are killed, at most: some steps."""


class Told(NamedTuple):
    """One line that one rank wrote."""

    round: int
    world: int
    word: str
    step: int
    weights: str
    position: int


def told(log: Path) -> list[Told]:
    """What all ranks wrote, by round; each rank's lines in order."""
    lines = [line.split() for path in log.parent.glob(f"{log.name}.*") for line in path.read_text().splitlines()]
    found = [Told(int(round), int(world), word, int(step), *rest) for round, world, word, step, *rest in lines]  # type: ignore[arg-type]
    return sorted(found, key=lambda each: each.round)


def undisturbed(folder: Path, steps: int = STEPS) -> Mapping[int, tuple[str, str]]:
    """Of each step, the weights and the position, as one process has them that no launcher has started."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUPPET")}
    words = [f"--steps={steps}", f"--checkpoint={folder / 'plain.pt'}", f"--log={folder / 'plain'}"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("keeps nothing in memory") == 1
    return {each.step: (each.weights, str(each.position)) for each in told(folder / "plain")}


def begin(job: Cluster, *nodes: str, steps: int = STEPS, words: tuple[str, ...] = (), **flags: Any) -> None:
    files = (f"--checkpoint={job.directory / 'run.pt'}", f"--log={job.directory / 'log'}")
    job.start(*nodes, script=SCRIPT, args=(f"--steps={steps}", *files, *words), max_restarts="20", **flags)


def kill_all(job: Cluster, world: int, draw: random.Random) -> None:
    """All workers of the next round, at a random instant after it has begun."""
    workers = job.workers(world, SECONDS)
    workers.wait_for("begins")
    time.sleep(draw.uniform(0, LONGEST))  # any instant will do: the steps wait for nobody
    for each in draw.sample(workers, len(workers)):
        os.kill(each.pid, signal.SIGKILL)


def let_end(job: Cluster, world: int) -> None:
    """The workers of the next round go on to the end."""
    job.workers(world, SECONDS).wait_for("the last step").tell("go")


def assert_nothing_was_lost(job: Cluster, machine_lost: bool = False) -> list[Told]:
    """Every round begins with the newest step that any rank has committed, and all ranks have the right weights.

    Where a machine was lost with shards of it, with the newest step that was on two nodes, in one of the rounds.
    """
    wanted, lines = undisturbed(job.directory), told(job.directory / "log")
    committed = safe = 0
    for round in sorted({each.round for each in lines}):
        here = [each for each in lines if each.round == round]
        begun = {each.step for each in here if each.word == "restored"}
        assert len(begun) == 1, f"round {round} begins with one step on all ranks: {begun}"
        first = begun.pop()
        if first < committed and machine_lost:
            machine_lost = False
            assert first >= safe, f"round {round}"
        else:
            assert first >= committed, f"round {round}"
        committed = max(each.step for each in here)
        safe = max((int(each.word.partition(":")[2]) for each in here if each.word.startswith("safe:")), default=0)
    for each in lines:
        assert (each.weights, str(each.position)) == wanted[each.step], each
    assert committed == STEPS
    assert not (job.directory / "run.pt").exists(), "there was no file to go on from"
    return lines


def test_two_workers_that_are_killed_at_random_instants_lose_no_committed_step(alone: Cluster) -> None:
    draw = random.Random(f"memory {SEED}")
    begin(alone, "A", nproc_per_node="2", words=("--holds",))
    for _ in range(KILLS):
        kill_all(alone, 2, draw)
    let_end(alone, 2)
    assert alone.finish(SECONDS) == {"A": 0}
    assert_nothing_was_lost(alone)


def test_two_nodes_a_third_that_comes_and_one_that_is_lost_lose_no_committed_step(job: Cluster) -> None:
    draw = random.Random(f"memory of nodes {SEED}")
    begin(job, "A", "B", nnodes="2:3", words=("--holds",))
    for _ in range(3):
        kill_all(job, 2, draw)
    job.workers(2, SECONDS).wait_for("begins")
    job.start("C")
    for _ in range(2):
        kill_all(job, 3, draw)
    workers = job.workers(3, SECONDS)
    workers.wait_for("begins")
    lost = workers.nodes[0]
    job.kill_machine(lost)
    kill_all(job, 2, draw)
    let_end(job, 2)
    assert job.finish(SECONDS) == dict.fromkeys({"A", "B", "C"} - {lost}, 0)
    lines = assert_nothing_was_lost(job)
    assert {each.world for each in lines} == {2, 3}


def test_pieces_of_a_model_at_changing_world_sizes_outlive_workers_and_a_machine(job: Cluster) -> None:
    draw = random.Random(f"memory of pieces {SEED}")
    begin(job, "A", nnodes="1:3", words=("--holds", "--shards"))
    job.workers(1, SECONDS).wait_for("begins")
    job.start("B")
    kill_all(job, 2, draw)
    job.workers(2, SECONDS).wait_for("begins")
    job.start("C")
    workers = job.workers(3, SECONDS)
    workers.wait_for("replicated")
    lost = workers.nodes[0]
    job.kill_machine(lost)
    kill_all(job, 2, draw)
    let_end(job, 2)
    assert job.finish(SECONDS) == dict.fromkeys({"A", "B", "C"} - {lost}, 0)
    lines = assert_nothing_was_lost(job, machine_lost=True)
    assert {each.world for each in lines} == {1, 2, 3}


VIRTUAL = {"virtual_local_rank": "", "env": {"CUDA_VISIBLE_DEVICES": "0,1"}}


@pytest.mark.parametrize("flags", [{}, VIRTUAL], ids=["own local ranks", "local rank 0 everywhere"])
def test_a_worker_that_dies_inside_a_copy_leaves_the_step_before_it(alone: Cluster, flags: dict[str, Any]) -> None:
    begin(alone, "A", steps=9, nproc_per_node="2", words=("--dies-inside", "4", "5"), **flags)
    assert alone.finish(SECONDS) == {"A": 0}
    lines = told(alone.directory / "log")
    assert {(each.round, each.step) for each in lines if each.word == "restored"} == {(1, 0), (2, 3), (3, 4)}
    assert {each.step for each in lines if each.round == 1} == set(range(4)), "nobody's commit of step 4 has returned"
    wanted = undisturbed(alone.directory, 9)
    assert all((each.weights, str(each.position)) == wanted[each.step] for each in lines)


def test_the_file_is_written_beside_it_and_says_of_which_run_it_is(alone: Cluster) -> None:
    begin(alone, "A", steps=5, words=("--persist=0.000001",))
    assert alone.finish(SECONDS) == {"A": 0}
    saved = torch.load(alone.directory / "run.pt", weights_only=True)
    assert (saved["step"], saved["round"]) == (5, 1)
    assert re.fullmatch(r"[0-9a-f]+", saved["run"])


pytestmark = pytest.mark.torch
