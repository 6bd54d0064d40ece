"""Jobs of a real Horovod without `horovodrun`: unchanged scripts, plain and elastic, and faults that happen to them."""

import importlib.util
import math
import os
import re
import signal
from collections.abc import Sequence

import numpy as np
import pytest

from ..sampling import SEED, SOAK
from .cluster import SCRIPTS, Cluster

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None,
    reason="HOROVOD IS NOT INSTALLED HERE: `sh tests/build_horovod.sh .venv/bin/python` builds it, and says why not",
)

PATIENCE = 120.0
"""Seconds; a worker imports PyTorch and Horovod first, on a busy machine."""

UNDISTURBED = ("-0x1.07bb8d4517d63p+0", "0x1.3dec6cf0e5705p-1", "0x1.14c458340c4b4p+0", "0x1.f84472bae829ap+0")
"""The result of `horovod_elastic.py`, of any number of workers, but for the last digits."""


def start(
    job: Cluster,
    *nodes: str,
    gates: Sequence[int] = (),
    script: str = "horovod_elastic.py",
    **flags: str | int | None,
) -> None:
    """Starts an elastic script on these nodes."""
    folder = job.directory / "gates"
    folder.mkdir(exist_ok=True)
    args = [str(folder), *(str(step) for step in gates)]
    job.start(*nodes, script=SCRIPTS / script, args=args, framework="horovod", **flags)


def at_gate(job: Cluster, step: int, world: int, without: Sequence[int] = ()) -> dict[int, tuple[str, int]]:
    """Waits until all of `world` workers wait at this step; the node and the pid of each rank.

    Args:
        without: pids of workers that are no more: what they said does not count.
    """
    said = re.compile(rf"gate (\d+): rank (\d+) of {world} at step {step}$")

    def look() -> dict[int, tuple[str, int]] | None:
        last = {  # what a worker says after a change counts
            int(match[1]): (int(match[2]), node.name)
            for node in job.nodes.values()
            for line in node.lines
            if (match := said.search(line)) and int(match[1]) not in without
        }
        found = {rank: (node, pid) for pid, (rank, node) in last.items()}
        return found if found.keys() == set(range(world)) and len(last) == world else None

    return job.wait_until(look, f"{world} workers wait at step {step}", PATIENCE)


def open_gate(job: Cluster, step: int) -> None:
    """They go on."""
    (job.directory / "gates" / f"go-{step}").touch()


def result(job: Cluster) -> list[float]:
    """What rank 0 printed at the end."""
    _, match = job.wait_anywhere(r"result ([-0-9a-fxp.+ ]+)$", PATIENCE)
    return [float.fromhex(number) for number in match[1].split()]


def assert_undisturbed(job: Cluster) -> None:
    """The result is that of a run without faults."""
    for number, expected in zip(result(job), UNDISTURBED, strict=True):
        assert math.isclose(number, float.fromhex(expected), rel_tol=1e-9)


def kill(job: Cluster, pid: int) -> None:
    """SIGKILL to one worker."""
    assert pid in job.processes()
    os.kill(pid, signal.SIGKILL)


def test_a_plain_script_runs_on_two_nodes_and_is_started_again(job: Cluster) -> None:
    args = [str(job.directory)]
    job.start("A", "B", script=SCRIPTS / "horovod_plain.py", args=args, nnodes=2, framework="horovod")
    job.wait_anywhere(r"begin at 0: rank 0 of 2, places \[\[0, 0, 0, 2\], \[1, 0, 1, 2\]\]$", PATIENCE)
    job.wait_anywhere(r"gate: rank 1", PATIENCE)
    job.kill_worker(1)
    job.wait_anywhere(r"begin at 5: rank 1 of 2", PATIENCE)
    (job.directory / "go").touch()
    _, found = job.wait_anywhere(r"result \[(.*)\]$", PATIENCE)
    weights = [float(number) for number in found[1].split(", ")]
    assert weights == [1 - 0.25 * sum(range(10)), 1 - 0.25 * 10 / 2]
    assert job.finish(PATIENCE) == {"A": 0, "B": 0}


VICTIMS = [1, 0] * 5 if SOAK else [SEED % 2, 1 - SEED % 2]
"""The ranks of the workers that are killed, one after the other."""


def test_elastic_workers_are_killed_in_a_row_and_the_others_keep_their_process(job: Cluster) -> None:
    gates = range(3, 3 + 3 * len(VICTIMS), 3)
    start(job, "A", gates=gates, nnodes=1, nproc_per_node=2, max_restarts=len(VICTIMS))
    dead: list[int] = []
    for step, victim in zip(gates, VICTIMS, strict=True):
        at = at_gate(job, step, 2, dead)
        _, lost = at[victim]
        _, stays = at[1 - victim]
        kill(job, lost)
        dead.append(lost)
        job.wait_for_line("A", rf"reset {stays}: rank 0 of 2", PATIENCE)
        at = at_gate(job, step, 2, dead)
        assert at[0][1] == stays, "rank 0 is who has the state"
        open_gate(job, step)
    assert_undisturbed(job)
    assert job.finish(PATIENCE) == {"A": 0}


def test_a_wrong_argument_ends_the_job_with_its_own_words(job: Cluster) -> None:
    args = [str(job.directory), "--gates"]
    script = SCRIPTS / "horovod_elastic.py"
    job.start("A", script=script, args=args, nnodes=1, nproc_per_node=2, framework="horovod", same_failure_limit=3)
    assert job.finish(PATIENCE) == {"A": 5}
    assert "invalid literal for int() with base 10: '--gates'" in job.log("A").partition("root cause")[2]


def test_a_script_of_tensorflow_loses_its_first_worker_and_its_first_node_and_another_joins(job: Cluster) -> None:
    script = "horovod_tensorflow.py"
    start(job, "A", "B", gates=[5, 10], script=script, nnodes="1:2")
    at = at_gate(job, 5, 2)
    (_, lost), (other, stays) = at[0], at[1]
    kill(job, lost)
    at = at_gate(job, 5, 2, [lost])
    assert at[0] == (other, stays), "rank 0 is who has the state"
    open_gate(job, 5)
    at = at_gate(job, 10, 2, [lost])
    gone, (last, survivor) = at[0], at[1]
    job.kill_machine(gone[0])
    at_gate(job, 10, 1, [lost, gone[1]])
    start(job, "C", gates=[5, 10], script=script)
    at = at_gate(job, 10, 2, [lost, gone[1]])
    assert (at[0], at[1][0]) == ((last, survivor), "C")
    open_gate(job, 10)
    weights, moved = np.arange(4.0), np.zeros(4)
    for step in range(20):
        features = np.array([[(step + record * k) % 3 for k in range(4)] for record in range(8)])
        moved = moved / 2 - 2 / 1024 * features.T @ (features @ weights - np.arange(8))
        weights += moved
    np.testing.assert_allclose(result(job), weights, rtol=1e-9)
    assert job.finish(PATIENCE) == {last: 0, "C": 0}


def test_the_first_node_is_lost_and_another_joins(job: Cluster) -> None:
    start(job, "A", "B", "C", gates=[5, 10], nnodes="2:3")
    at = at_gate(job, 5, 3)
    first, other, third = (at[rank] for rank in range(3))
    job.kill_machine(first[0])
    at = at_gate(job, 5, 2, [first[1]])
    assert at == {0: other, 1: third}
    open_gate(job, 5)
    at_gate(job, 10, 2, [first[1]])
    start(job, "D", gates=[5, 10])
    at = at_gate(job, 10, 3, [first[1]])
    assert (at[0], at[1], at[2][0]) == (other, third, "D")
    open_gate(job, 10)
    assert_undisturbed(job)
    assert job.finish(PATIENCE) == {other[0]: 0, third[0]: 0, "D": 0}


def test_a_frozen_worker_and_a_frozen_machine_are_replaced_and_a_node_that_gets_sigterm_leaves(job: Cluster) -> None:
    start(job, "A", "B", gates=[5, 10, 15], nnodes="1:2")
    (_, frozen), other = (at_gate(job, 5, 2)[rank] for rank in range(2))
    os.kill(frozen, signal.SIGSTOP)
    at = at_gate(job, 5, 2, [frozen])
    assert at[0] == other, "rank 0 is who has the state: it does not spread an empty one"
    open_gate(job, 5)

    (first, silent), other = (at_gate(job, 10, 2, [frozen])[rank] for rank in range(2))
    job.freeze_machine(first)
    gone = [frozen, silent]
    assert at_gate(job, 10, 1, gone) == {0: other}
    open_gate(job, 10)
    at_gate(job, 15, 1, gone)
    job.thaw_machine(first)
    at = at_gate(job, 15, 2, gone)
    assert (at[0], at[1][0]) == (other, first), "what comes back joins again"

    job.send(other[0], signal.SIGTERM)
    assert at_gate(job, 15, 1, [*gone, other[1]]) == {0: at[1]}
    open_gate(job, 15)
    assert_undisturbed(job)
    assert job.finish(PATIENCE) == {other[0]: 143, first: 0}


def test_the_only_worker_of_the_first_node_is_lost_where_that_node_is_needed(job: Cluster) -> None:
    start(job, "A", "B", gates=[5], nnodes=2)
    (_, lost), other = (at_gate(job, 5, 2)[rank] for rank in range(2))
    kill(job, lost)
    assert at_gate(job, 5, 2, [lost])[0] == other, "rank 0 is who has the state"
    open_gate(job, 5)
    assert_undisturbed(job)
    assert job.finish(PATIENCE) == {"A": 0, "B": 0}
