"""Jobs of real JAX processes: what is killed is made good, and the result is that of a run without faults."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elastic_run.adapters import services
from elastic_run.adapters.contract import Round
from elastic_run.adapters.jax.adapter import Jax

from ..sampling import SEED, SOAK
from .cluster import SCRIPTS, Cluster, command_line
from .regression import STEPS, undisturbed

SECONDS = 120.0
"""For a round of fresh interpreters that all import JAX, on a busy machine."""

ROUND = Round("job", 1, 2, 1, "127.0.0.1", 29500)


def start(
    job: Cluster,
    *nodes: str,
    hold: tuple[int, ...] = (),
    more: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    **flags: str,
) -> None:
    checkpoint = f"--checkpoint={job.directory / 'checkpoint.npz'}"
    args = (checkpoint, f"--steps={STEPS}", *more, "--hold", *map(str, hold))
    env = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_PREEMPTION_SERVICE": "false", **(env or {})}
    job.start(*nodes, script=SCRIPTS / "jax_steps.py", args=args, env=env, framework="jax", **flags)


def coordinators(job: Cluster) -> list[int]:
    return [pid for pid in job.processes() if "coordinator.py" in command_line(pid)]


def assert_trained(job: Cluster) -> None:
    with np.load(job.directory / "checkpoint.npz") as saved:
        assert int(saved["step"]) == STEPS
        np.testing.assert_allclose(saved["weights"], undisturbed(STEPS), rtol=1e-3, atol=1e-4)


VICTIMS = [1, 0] * 5 if SOAK else [1, 0, SEED % 2]
"""The ranks of the workers that are killed, one after the other."""


def test_killed_workers_in_a_row_are_replaced_and_the_result_is_the_same(job: Cluster) -> None:
    steps = range(1, 1 + len(VICTIMS))
    start(job, "A", "B", hold=tuple(steps), nnodes="2", max_restarts=str(len(VICTIMS)))
    for step, victim in zip(steps, VICTIMS, strict=True):  # the round has the step's number
        job.workers(2, SECONDS).wait_for(f"step {step}")
        job.kill_worker(victim)
        for node in "AB":
            job.wait_for_line(node, rf"round {step + 1}: 2 -> 2 nodes, .* rank {victim} on node . died by SIGKILL")
    job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0, "B": 0}
    assert_trained(job)


def test_nodes_are_lost_and_added_also_the_one_with_the_coordinator(job: Cluster) -> None:
    # One after the other: of two nodes started together, one may train alone, and past where this waits for both.
    start(job, "A", hold=(2, 4, 6, 8), nnodes="1:3")  # SIGTERM ends its peers, as their preemption service is off
    job.workers(1, SECONDS).wait_for("step 2")
    start(job, "B", hold=(2, 4, 6, 8), nnodes="1:3")
    job.workers(2, SECONDS).wait_for("step 4")
    start(job, "C", hold=(2, 4, 6, 8), nnodes="1:3")
    workers = job.workers(3, SECONDS)
    workers.wait_for("step 6")
    assert workers.nodes == ["A", "B", "C"]
    job.kill_machine("A")
    workers = job.workers(2, SECONDS)
    workers.wait_for("step 8")
    assert workers.nodes == ["B", "C"]
    job.kill_machine("C")
    job.workers(1, SECONDS)
    assert job.finish(SECONDS) == {"B": 0}
    assert_trained(job)


def test_the_coordinator_that_dies_is_named_and_costs_no_restart(job: Cluster) -> None:
    start(job, "A", hold=(3,), nnodes="1", nproc_per_node="2", max_restarts="0")
    job.workers(2, SECONDS).wait_for("step 3")
    (pid,) = coordinators(job)
    os.kill(pid, signal.SIGKILL)
    job.wait_for_line("A", rf"round 2: .*the service coordinator \(pid {pid}\) died by SIGKILL")
    job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0}
    assert_trained(job)


def test_a_process_that_raises_ends_at_once_and_is_the_cause(job: Cluster) -> None:
    start(job, "A", nnodes="1", nproc_per_node="3", more=("--own", "--fail=1"))
    job.workers(3, SECONDS)
    job.wait_for_line("A", r"rank 1 .*ValueError: one process failed", SECONDS)
    job.workers(3, SECONDS)
    assert job.finish(SECONDS) == {"A": 0}
    assert_trained(job)


def test_a_wrong_argument_ends_the_job_with_its_own_words(job: Cluster) -> None:
    start(job, "A", nnodes="1", nproc_per_node="2", more=("--stepz",), same_failure_limit="3")
    assert job.finish(SECONDS) == {"A": 1}
    assert "unrecognized arguments: --stepz" in job.log("A").partition("root cause")[2]


def test_rank_0_hosts_the_coordinator_where_jaxlib_cannot_run_it_alone(job: Cluster, tmp_path: Path) -> None:
    older = tmp_path / "site-packages" / "jaxlib"
    older.mkdir(parents=True)
    for name, text in (("__init__", ""), ("version", "__version__ = '9.9'"), ("_jax", "")):
        (older / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, Jax().services(ROUND)[0].arguments[0]],
        input=services.line(ROUND, node_rank=0),
        env={**os.environ, "PYTHONPATH": str(older.parent)},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert (
        b"jaxlib 9.9 offers no coordination service" in done.stderr
        and b"ELASTIC_RUN_JAX_COORDINATOR=worker" in done.stderr
    )

    start(job, "A", hold=(3,), nnodes="1", nproc_per_node="2", env={"ELASTIC_RUN_JAX_COORDINATOR": "worker"})
    job.workers(2, SECONDS).wait_for("step 3")
    assert not coordinators(job)
    job.kill_worker(0)
    job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0}
    assert_trained(job)
