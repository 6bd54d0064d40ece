"""`elastic_run.torch.Checkpoint`: model and position stay together, whoever is killed."""

import os
import re
import signal

import torch

from .cluster import SCRIPTS, Cluster

SECONDS = 120.0
SIZE, EPOCHS = 150, 2


def start(
    job: Cluster,
    *nodes: str,
    hold: tuple[int, ...] = (),
    file: str = "run.pt",
    more: tuple[str, ...] = (),
    **flags: str,
) -> None:
    sizes = (f"--size={SIZE}", f"--epochs={EPOCHS}", f"--checkpoint={job.directory / file}", *more)
    job.start(*nodes, script=SCRIPTS / "leased_checkpoint.py", args=(*sizes, "--hold", *map(str, hold)), **flags)


def assert_each_record_was_used_once_in_each_epoch(job: Cluster) -> None:
    saved = torch.load(job.directory / "run.pt", weights_only=True)
    assert saved["parts"]["model"]["counts"].tolist() == [EPOCHS] * SIZE
    assert not list(job.directory.glob(".run.pt.*"))


def test_killed_workers_an_added_and_a_lost_node_leave_each_record_in_the_model_once(job: Cluster) -> None:
    # Checkpoints are of every third step: what was done after it is lost, and done again.
    start(job, "A", "B", hold=(5, 9, 11, 13), nnodes="2:3", max_restarts="2")
    for round, (step, victim) in enumerate(((5, 1), (9, 0)), start=1):
        job.workers(2, SECONDS).wait_for(f"step {step}")
        job.kill_worker(victim)
        for node in "AB":
            job.wait_for_line(node, rf"round {round + 1}: 2 -> 2 nodes, .* rank {victim} on node . died by SIGKILL")
    workers = job.workers(2, SECONDS)
    workers.wait_for("step 11")
    first, other = workers.nodes
    job.start("C")
    job.workers(3, SECONDS).wait_for("step 13")
    job.kill_machine(first)
    assert job.workers(2, SECONDS).nodes == [other, "C"]
    assert job.finish(SECONDS) == {other: 0, "C": 0}
    begun = re.findall(r"rank 0 goes on after step (\d+)", "".join(map(job.log, "ABC")))
    assert sorted(map(int, begun)) == [0, 3, 9, 9, 12]
    assert_each_record_was_used_once_in_each_epoch(job)


def test_nodes_that_do_not_see_the_same_file_are_told(job: Cluster) -> None:
    start(job, "A", "B", hold=(4,), file="NODE.pt", nnodes="2", max_restarts="1")
    job.workers(2, SECONDS).wait_for("step 4")
    job.kill_worker(1)
    job.workers(2, SECONDS)
    assert all(code for code in job.finish(SECONDS).values())
    job.wait_anywhere(
        r"BadCheckpoint: the ranks do not find the same checkpoint at .*\.pt: rank 0 finds one of step 3,"
    )


def test_with_memory_all_workers_may_be_killed_at_once_after_any_step(job: Cluster) -> None:
    held = (5, 10, 11)
    start(job, "A", "B", hold=held, more=("--memory=1",), nnodes="2", max_restarts="5")
    for step in held:
        workers = job.workers(2, SECONDS)
        workers.wait_for(f"step {step}")
        for each in workers:
            os.kill(each.pid, signal.SIGKILL)
    job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0, "B": 0}
    begun = re.findall(r"rank 0 goes on after step (\d+)", "".join(map(job.log, "AB")))
    assert sorted(map(int, begun)) == [0, *held]
    assert_each_record_was_used_once_in_each_epoch(job)
