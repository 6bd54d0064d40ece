"""`elastic_run.torch.Checkpoint`: model and position stay together, whoever is killed; the example works."""

import re

import torch

from .cluster import EXAMPLES, SCRIPTS, Cluster

SECONDS = 120.0
SIZE, EPOCHS = 150, 2


def start(job: Cluster, *nodes: str, hold: tuple[int, ...] = (), file: str = "run.pt", **flags: str) -> None:
    sizes = (f"--size={SIZE}", f"--epochs={EPOCHS}", f"--checkpoint={job.directory / file}")
    job.start(*nodes, script=SCRIPTS / "leased_checkpoint.py", args=(*sizes, "--hold", *map(str, hold)), **flags)


def assert_each_record_was_used_once_in_each_epoch(job: Cluster) -> None:
    saved = torch.load(job.directory / "run.pt", weights_only=True)
    assert saved["parts"]["model"]["counts"].tolist() == [EPOCHS] * SIZE
    assert not list(job.directory.glob(".run.pt.*"))


def test_killed_workers_leave_each_record_in_the_model_once(job: Cluster) -> None:
    # Checkpoints are of every third step: what was done after it is lost, and done again.
    start(job, "A", "B", hold=(5, 9, 11), nnodes="2", max_restarts="3")
    for round, (step, victim) in enumerate(((5, 1), (9, 0), (11, 1)), start=1):
        job.workers(2, SECONDS).wait_for(f"step {step}")
        job.kill_worker(victim)
        for node in "AB":
            job.wait_for_line(node, rf"round {round + 1}: 2 -> 2 nodes, .* rank {victim} on node . died by SIGKILL")
    workers = job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0, "B": 0}
    assert [int(step) for step in re.findall(r"rank 0 goes on after step (\d+)", job.log(workers.nodes[0]))][-1] == 9
    assert_each_record_was_used_once_in_each_epoch(job)


def test_a_lost_node_and_an_added_one_leave_each_record_in_the_model_once(job: Cluster) -> None:
    start(job, "A", "B", hold=(4, 7), nnodes="2:3")
    workers = job.workers(2, SECONDS)
    workers.wait_for("step 4")
    first, other = workers.nodes
    job.start("C")
    workers = job.workers(3, SECONDS)
    workers.wait_for("step 7")
    job.kill_machine(first)
    assert job.workers(2, SECONDS).nodes == [other, "C"]
    assert job.finish(SECONDS) == {other: 0, "C": 0}
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


def test_the_example_trains_on_leased_shards(job: Cluster) -> None:
    args = ("--epochs=6", f"--checkpoint={job.directory / 'leased.pt'}")
    job.start("A", "B", nnodes="2", script=EXAMPLES / "digits_leased.py", args=args)
    assert job.finish(SECONDS) == {"A": 0, "B": 0}
    _, found = job.wait_anywhere(r"after (\d+) steps: ([\d.]+) % of the digits")
    assert float(found[2]) > 80
