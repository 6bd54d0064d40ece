"""Whole jobs that count how often they train on each record, while workers and machines die and come."""

import pytest

from ..sampling import sample
from .cluster import SCRIPTS, Cluster

pytestmark = pytest.mark.torch


def count(
    job: Cluster, *nodes: str, nnodes: str, max_restarts: int = 3, scale_up: str | None = None, **options: str | int
) -> None:
    """Starts the script that counts; its workers stop in each round for as long as the test lets them."""
    args = [f"--checkpoint={job.directory / 'counts.pt'}"]
    for name, value in options.items():
        args += [f"--{name.replace('_', '-')}", *str(value).split()]
    largest = {"ELASTIC_RUN_MAX_WORLD_SIZE": nnodes.rpartition(":")[2]}
    script = SCRIPTS / "histogram.py"
    flags: dict[str, str | int | None] = {"nnodes": nnodes, "max_restarts": max_restarts, "scale_up": scale_up}
    job.start(*nodes, script=script, args=args, env=largest, **flags)


OPTIONS = {
    "uneven tails and loader workers": {"size": 101, "batch_size": 3, "epochs": 4, "loader_workers": 2, "hold": 11},
    "a fixed global batch": {"size": 101, "batch_size": 2, "epochs": 4, "fixed_global_batch": 9, "hold": 11},
}
"""A run draws one of them: `tests/faults/test_data.py` draws others."""


@pytest.mark.parametrize("name", sample(OPTIONS, 1, "lockstep"))
def test_every_record_is_trained_on_once_an_epoch_through_deaths_and_joins(job: Cluster, name: str) -> None:
    options = OPTIONS[name]
    count(job, "A", "B", "C", nnodes="2:3", **options)
    first = job.workers(3)
    first.wait_for("trains")
    job.kill_worker(2)

    second = job.workers(3)
    second.wait_for("trains")
    lost = next(node for node in "ABC" if node not in (job.master(), second[0].node))
    job.kill_machine(lost)

    third = job.workers(2)
    third.wait_for("trains")
    job.start("D", env={"ELASTIC_RUN_MAX_WORLD_SIZE": "3"})

    fourth = job.workers(3)
    fourth.wait_for("trains")
    fourth[0].tell("go")
    ended = job.finish()
    assert ended == dict.fromkeys({"A", "B", "C", "D"} - {lost}, 0)
    for node in ended:
        job.wait_for_line(node, rf"ends after step \d+: each record was trained on \[{options['epochs']}\] times")


def test_ranks_that_would_not_train_on_the_same_data_are_refused_before_the_first_step(job: Cluster) -> None:
    count(job, "A", "B", nnodes="2:2", max_restarts=0, size=100, batch_size="4 5", hold=1)
    assert job.finish() == {"A": 1, "B": 1}
    for node in "AB":
        job.wait_for_line(node, "would not train on the same data: batch_size is 4 on rank 0 and 5 on rank 1")


def test_with_scale_up_commit_a_joining_node_is_admitted_after_a_checkpoint(job: Cluster) -> None:
    count(job, "A", nnodes="1:2", size=101, batch_size=3, epochs=60, save_every=3, hold=4, scale_up="commit")
    job.wait_for_line("A", "rank 0 of 1 begins in epoch 0 after step 0")
    first = job.workers(1)
    first.wait_for("trains")
    job.start("B", env={"ELASTIC_RUN_MAX_WORLD_SIZE": "2"})
    job.wait_for_line("A", r"B will join after the next checkpoint \(--scale-up=commit\)")
    first[0].tell("go")

    second = job.workers(2)
    second.wait_for("trains")
    (step,) = {int(line.rpartition(" ")[2]) for line in job.nodes["B"].lines if "of 2 begins in epoch" in line}
    assert step >= 6, "a checkpoint was written after the arrival, and the round went on from it"
    second[0].tell("go")
    assert job.finish() == {"A": 0, "B": 0}
    for node in "AB":
        job.wait_for_line(node, r"each record was trained on \[60\] times")
