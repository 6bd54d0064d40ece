"""Training that goes on in the survivors' processes, under faults of real processes."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from .cluster import SCRIPTS, Cluster

pytestmark = pytest.mark.torch

SCRIPT = SCRIPTS / "in_place.py"

STEPS = 20
"""In an epoch."""

END = r"ends after step (\d+): each record was trained on \[(\d+)\] times; (\S+)"


def begin(job: Cluster, *nodes: str, nproc: int = 1, nnodes: str = "1", grace: int = 0, **options: object) -> None:
    """Starts the script; its options are the keywords."""
    options = {"until": job.directory / "enough", **options}
    args = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    given = {"nproc_per_node": nproc, "nnodes": nnodes, "max_restarts": 20, "grace_after_failure": grace}
    job.start(*nodes, script=SCRIPT, args=args, **given)


def groups(job: Cluster, node: str) -> list[tuple[int, int, int, int, int]]:
    """Of each process group that workers of a node were in: round, pid, rank, world, the step that it began at."""
    pattern = re.compile(r"group (\d+): pid (\d+) rank (\d+) of (\d+) from step (\d+)")
    found = [pattern.search(line) for line in job.nodes[node].lines]
    return [tuple(map(int, match.groups())) for match in found if match]  # type: ignore[misc]


def trains(job: Cluster, node: str, round: int, steps: int = 3) -> None:
    """Waits until the workers of a node have made some steps in the process group of that round."""

    def look() -> bool:
        lines = job.nodes[node].lines
        begun = [index for index, line in enumerate(lines) if f"group {round}: " in line]
        return bool(begun) and sum("] step " in line for line in lines[begun[-1] :]) >= steps

    job.wait_until(lambda: look() or None, f"{node} trains in round {round}")


def ends(job: Cluster, *nodes: str, left: str = "") -> tuple[int, str]:
    """Lets it end; how many epochs there were, and the parameters' fingerprint, which are the same on all ranks."""
    (job.directory / "enough").touch()
    codes = dict.fromkeys(nodes, 0) | ({left: 128 + signal.SIGTERM} if left else {})
    assert job.finish() == codes
    found: set[tuple[str, str, str]] = set()
    for node in nodes:
        matches = re.findall(END, job.log(node))
        assert matches, f"{node} says nothing of its end"
        found.update(matches)
    ((steps, counts, mark),) = found
    assert int(steps) == int(counts) * STEPS
    return int(counts), mark


COMPARED = pytest.mark.xdist_group("undisturbed")
"""Tests that compare with the same run without faults, which one process makes."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What two workers have learnt without any fault, after each epoch."""
    with Cluster(tmp_path_factory.mktemp("undisturbed") / "job", None, lambda: False) as job:
        begin(job, "U", nproc=2, pause=0, until="/nowhere")
        assert job.finish() == {"U": 0}
        found = set(re.findall(r"epoch (\d+): (\S+)", job.log("U")))
    assert len(found) == 100
    return {int(epoch): mark for epoch, mark in found}


@COMPARED
@pytest.mark.parametrize(
    "options",
    [{}, {"late": 1}, {"late": 7}, {"decorator": 0}],
    ids=["", "a collective before each commit", "and before some", "a loop of its own, without the decorator"],
)
def test_killed_workers_leave_the_others_where_they_are(
    alone: Cluster, undisturbed: dict[int, str], options: dict[str, int]
) -> None:
    begin(alone, "A", nproc=2, **options)
    trains(alone, "A", 1)
    alone.kill_worker(1)
    trains(alone, "A", 2, steps=5)
    alone.kill_worker(0)
    trains(alone, "A", 3)
    epochs, mark = ends(alone, "A")
    assert mark == undisturbed[epochs]
    seen = groups(alone, "A")
    assert len({pid for _, pid, *_ in seen}) == 2 + 2, "one new process for each that was killed"
    for round in (2, 3):
        (step,) = {begun for number, *_, begun in seen if number == round}
        assert step > 0, "no committed step is lost"
    assert "2 worker failures" in alone.log("A")


@COMPARED
def test_where_all_are_lost_the_script_begins_as_it_always_does_and_says_so(
    alone: Cluster, undisturbed: dict[int, str]
) -> None:
    begin(alone, "A", nproc=2)
    trains(alone, "A", 1)
    for pid in [alone.worker_pid(rank) for rank in (0, 1)]:
        os.kill(pid, signal.SIGKILL)
    alone.wait_until(lambda: len(groups(alone, "A")) >= 4 or None, "two new workers are in a process group")
    latest = groups(alone, "A")[-1][0]
    assert latest in (2, 3), "a round for both, or for each, where the agent is told of one before the other is killed"
    trains(alone, "A", latest)
    epochs, mark = ends(alone, "A")
    assert mark == undisturbed[epochs]
    assert {step for round, *_, step in groups(alone, "A") if round > 1} == {0}
    assert "no living worker has a committed step: the job continues from what the script has loaded" in alone.log("A")


def test_nodes_that_die_come_and_leave_cost_no_process_and_no_record(job: Cluster) -> None:
    nnodes = "2:3"
    begin(job, "A", "B", nnodes=nnodes)
    trains(job, "A", 1)
    stays = job.master()
    leaves = "B" if stays == "A" else "A"
    begin(job, "C", nnodes=nnodes)
    trains(job, "C", 2)
    for node in "AB":
        steps = [line.rpartition("step ")[2] for line in job.nodes[node].lines if "] step " in line]
        assert len(steps) == len(set(steps)), "a step that is committed is not trained again when a node joins"
        assert "was told" not in job.log(node)
    job.kill_machine("C")
    trains(job, stays, 3)
    begin(job, "D", nnodes=nnodes)
    trains(job, "D", 4)
    job.send(leaves, signal.SIGTERM)
    trains(job, stays, 5)
    job.kill_machine("D")
    job.wait_for_line(stays, r"1 of 2 required nodes remain")
    begin(job, "E", nnodes=nnodes)
    trains(job, "E", 7)
    ends(job, stays, "E", left=leaves)
    for node in (stays, leaves):
        assert len({pid for _, pid, *_ in groups(job, node)}) == 1, job.log(node)
    assert [world for _, _, _, world, _ in groups(job, stays)] == [2, 3, 2, 3, 2, 2]
    assert min(step for round, *_, step in groups(job, "E")) > 0, "who waits below the minimum keeps its model"


@pytest.mark.parametrize("nproc", [1, 2], ids=["that is its only one", "beside another, which has the state"])
def test_a_worker_of_one_node_among_two_costs_one_process(job: Cluster, nproc: int) -> None:
    begin(job, "A", "B", nnodes="1:2", nproc=nproc)
    trains(job, "A", 1)
    hurt = "B" if job.master() == "A" else "A"
    whole = "A" if hurt == "B" else "B"
    job.kill_worker(next(rank for round, _, rank, *_ in groups(job, hurt) if round == 1))
    trains(job, whole, 3 if nproc == 1 else 2)
    ends(job, "A", "B")
    worlds = [(1, 2), (2, 1), (3, 2)] if nproc == 1 else [(1, 4), (2, 4)]
    assert [(round, world) for round, _, _, world, _ in groups(job, whole)] == [
        each for each in worlds for _ in range(nproc)
    ]
    assert len({pid for _, pid, *_ in groups(job, whole)}) == nproc
    assert len({pid for _, pid, *_ in groups(job, hurt)}) == nproc + 1
    assert all(step > 0 for round, *_, step in groups(job, hurt) if round > 1), "no committed step is lost"


def test_a_join_after_the_training_does_not_begin_it_again(job: Cluster) -> None:
    tail = job.directory / "tail"
    job.directory.mkdir(parents=True, exist_ok=True)
    tail.touch()
    begin(job, "A", nnodes="1:2", tail=tail)
    trains(job, "A", 1)
    (job.directory / "enough").touch()
    job.wait_for_line("A", END)
    begin(job, "B", nnodes="1:2", tail=tail)
    job.wait_for_line("A", r"B joined too late: workers of round 1 are already finishing")
    tail.unlink()
    assert job.finish() == {"A": 0, "B": 0}
    assert [round for round, *_ in groups(job, "A")] == [1]
    assert groups(job, "B") == []


def rank_1_is(job: Cluster, what: str, folder: Path, nproc: int, **options: object) -> tuple[Path, int]:
    """Starts one node whose rank 1 is "stuck" or "busy" after some steps, as long as the file is there; and its pid."""
    file = folder / what
    begin(job, "A", nproc=nproc, **{what: file, **options})
    trains(job, "A", 1)
    file.touch()
    job.wait_for_line("A", "rank 1] does not look up")
    return file, job.worker_pid(1)


@pytest.mark.parametrize("grace", [0, 30])
def test_a_worker_that_does_not_look_up_is_started_again_and_the_others_are_not(
    alone: Cluster, tmp_path: Path, grace: int
) -> None:
    stuck, one = rank_1_is(alone, "stuck", tmp_path, nproc=3, grace=grace, saved=tmp_path / "saved")
    alone.kill_worker(2)
    alone.wait_for_line("A", f"the worker with pid {one} did not leave its process group in time: restarting it")
    stuck.unlink()
    trains(alone, "A", 2)
    ends(alone, "A")
    assert len({pid for _, pid, rank, *_ in groups(alone, "A") if rank == 0}) == 1
    assert len({pid for _, pid, *_ in groups(alone, "A")}) == 5
    assert (tmp_path / "saved").exists() == bool(grace), "it may save where the user gives it time"


def test_the_only_worker_that_has_the_state_gets_the_time_to_end_what_it_computes(
    alone: Cluster, tmp_path: Path
) -> None:
    busy, one = rank_1_is(alone, "busy", tmp_path, nproc=2)
    alone.kill_worker(0)
    alone.wait_for_line("A", f"waiting for pid {one} to leave the process group")
    time.sleep(2)  # longer than who waits for something would get
    busy.unlink()
    trains(alone, "A", 2)
    ends(alone, "A")
    assert len({pid for _, pid, *_ in groups(alone, "A")}) == 3


def test_ranks_that_go_on_with_a_broken_process_group_get_the_state_of_one(alone: Cluster) -> None:
    alone.start("A", script=SCRIPTS / "swallows.py", nproc_per_node=3, nnodes="1", max_restarts=20)
    assert alone.finish() == {"A": 0}
    log = alone.log("A")
    assert "skips a batch" in log  # by both in the same step, or by one that has come a step further
    ended = re.findall(r"ends after 60 steps with (.*)", log)
    assert len(ended) == 3
    assert len(set(ended)) == 1


def test_a_worker_whose_steps_are_long_gets_the_time_to_come_out_of_one(alone: Cluster) -> None:
    begin(alone, "A", nproc=2, pause=2.5)
    trains(alone, "A", 1, steps=3)
    time.sleep(0.4)  # into the next step, and more than a second before its end
    alone.kill_worker(1)
    trains(alone, "A", 2, steps=1)
    alone.send("A", signal.SIGTERM)
    assert alone.finish() == {"A": 128 + signal.SIGTERM}
    assert len({pid for _, pid, rank, *_ in groups(alone, "A") if rank == 0}) == 1
    assert "did not leave its process group in time" not in alone.log("A")


@COMPARED
def test_a_process_group_that_breaks_though_nobody_is_lost_is_formed_again(
    alone: Cluster, undisturbed: dict[int, str]
) -> None:
    begin(alone, "A", nproc=2, snap=7)
    alone.wait_for_line("A", "node A has workers whose process group broke, although no node is known to be lost: ")
    trains(alone, "A", 2)
    epochs, mark = ends(alone, "A")
    assert mark == undisturbed[epochs]
    assert len({pid for _, pid, *_ in groups(alone, "A")}) == 2
    assert "worker failure" not in alone.log("A")
