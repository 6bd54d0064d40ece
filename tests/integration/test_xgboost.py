"""Jobs of real XGBoost workers: what is killed is made good, and the model is that of a run without faults."""

import os
import re
import signal

import numpy as np
import xgboost

from .cluster import SCRIPTS, Cluster, command_line

SECONDS = 120.0
"""For a round of fresh interpreters that all import XGBoost, on a busy machine."""

TREES = 12


def start(job: Cluster, *nodes: str, hold: tuple[int, ...] = (), more: tuple[str, ...] = (), **flags: str) -> None:
    checkpoint = f"--checkpoint={job.directory / 'model.ubj'}"
    args = (checkpoint, f"--trees={TREES}", *more, "--hold", *map(str, hold))
    job.start(*nodes, script=SCRIPTS / "xgboost_steps.py", args=args, framework="xgboost", preload="xgboost", **flags)


def trackers(job: Cluster) -> list[int]:
    return [pid for pid in job.processes() if "xgboost/tracker.py" in command_line(pid)]


def assert_trained(job: Cluster) -> None:
    """The model predicts what one predicts that a single process made without XGBoost's collective."""
    inputs = np.random.default_rng(0).integers(0, 16, (1200, 4)).astype(float)  # as in `scripts/xgboost_steps.py`
    data = xgboost.DMatrix(inputs, inputs @ np.array([1.0, -2.0, 3.0, 0.5]))
    undisturbed = xgboost.train({"tree_method": "hist", "max_depth": 4, "eta": 0.5, "nthread": 1}, data, TREES)
    found = xgboost.Booster(model_file=job.directory / "model.ubj")
    assert found.num_boosted_rounds() == TREES
    np.testing.assert_allclose(found.predict(data), undisturbed.predict(data), rtol=1e-3, atol=1e-2)


def test_ten_killed_workers_in_a_row_are_replaced_and_the_model_is_the_same(job: Cluster) -> None:
    start(job, "A", "B", hold=tuple(range(1, 11)), nnodes="2", max_restarts="10")
    for trees in range(1, 11):
        job.workers(2, SECONDS).wait_for(f"{trees} trees")
        job.kill_worker(trees % 2)
    job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0, "B": 0}
    # Not told as ten rounds: a node offers eight ports in turn, and the ninth round may find the first still taken.
    assert len(re.findall(r"\) died by SIGKILL \(9\) after", job.log("A") + job.log("B"))) == 10
    assert_trained(job)


def test_nodes_are_lost_and_added_also_the_one_with_the_tracker(job: Cluster) -> None:
    # One after the other: of two nodes started together, one may train alone, and past where this waits for both.
    start(job, "A", hold=(2, 4, 6, 8), more=("--leased",), nnodes="1:3")
    job.workers(1, SECONDS).wait_for("2 trees")
    job.start("B")
    job.workers(2, SECONDS).wait_for("4 trees")
    job.start("C")
    workers = job.workers(3, SECONDS)
    workers.wait_for("6 trees")
    assert workers.nodes == ["A", "B", "C"]
    job.kill_machine("A")
    workers = job.workers(2, SECONDS)
    workers.wait_for("8 trees")
    assert workers.nodes == ["B", "C"]
    job.kill_machine("C")
    job.workers(1, SECONDS)
    assert job.finish(SECONDS) == {"B": 0}
    assert_trained(job)


def test_one_tracker_serves_round_after_round_and_is_replaced_when_it_dies(job: Cluster) -> None:
    start(job, "A", hold=(3, 6), nnodes="1", nproc_per_node="3", max_restarts="1")
    job.workers(3, SECONDS).wait_for("3 trees")
    (pid,) = trackers(job)
    job.kill_worker(2)
    job.workers(3, SECONDS).wait_for("6 trees")
    assert trackers(job) == [pid]
    os.kill(pid, signal.SIGKILL)
    job.wait_for_line("A", rf"round 3: .*the service tracker \(pid {pid}\) died by SIGKILL")
    job.workers(3, SECONDS)
    assert job.finish(SECONDS) == {"A": 0}
    assert_trained(job)


def test_a_wrong_argument_ends_the_job_with_its_own_words(job: Cluster) -> None:
    start(job, "A", nnodes="1", nproc_per_node="2", more=("--treez",), same_failure_limit="3")
    assert job.finish(SECONDS) == {"A": 1}
    assert "unrecognized arguments: --treez" in job.log("A").partition("root cause")[2]
