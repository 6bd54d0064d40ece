"""Faults in a row that nobody has thought of, drawn up front from a seed.

The seed is the run's (`tests/sampling.py`), and stands in the name of the test; with ELASTIC_RUN_SOAK=50 there are 50.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ..integration.conftest import Cluster as Etcd
from ..sampling import SEEDS, SOAK
from .in_place import TRAIN_IN_PLACE, JobInPlace
from .job import Job
from .scene import (
    Scene,
    agent_is_killed,
    agent_is_stopped_for_a_moment,
    agent_is_stopped_until_its_workers_are_gone,
    machine_is_lost,
    member_of_etcd_is_started_again,
    node_is_told_to_go,
    worker_crashes,
    worker_exits,
    worker_is_killed,
    worker_raises,
)

pytestmark = [pytest.mark.torch, pytest.mark.slow]

IN_A_ROW = 20 if SOAK else 8
"""Faults of one job."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One fault of a schedule.

    Attributes:
        fault: its name.
        pick: in 0..1, whom it happens to of those that are there.
        after: how far the job must have come since the fault before: "anything", "workers" run, or it "trains".
    """

    fault: str
    pick: float
    after: str


def schedule(seed: int) -> list[Turn]:
    """The faults of one seed."""
    draw = random.Random(seed)
    return [
        Turn(draw.choice(sorted(FAULTS)), draw.random(), draw.choice(("anything", "workers", "trains")))
        for _ in range(IN_A_ROW)
    ]


FAULTS: dict[str, Callable[[Scene, float], None]] = {
    fault.__name__: fault
    for fault in (
        worker_is_killed,
        worker_raises,
        worker_exits,
        worker_crashes,
        agent_is_killed,
        machine_is_lost,
        node_is_told_to_go,
        agent_is_stopped_until_its_workers_are_gone,
        agent_is_stopped_for_a_moment,
        member_of_etcd_is_started_again,
    )
}


def plays(scene: Scene, seed: int) -> None:
    """The faults of that seed happen, and the job ends as it should."""
    job = scene.job
    scene.fill()
    for turn in schedule(seed):
        if turn.after == "trains":
            job.advances(5)
        if turn.after == "workers" or not job.living():
            job.worker(0)
        FAULTS[turn.fault](scene, turn.pick)
        scene.fill()
    for name in scene.staying():  # a job that succeeds before its last node has come refuses that one
        job.wait_for_line(name, "this node is registered as")
    job.advances()
    codes = job.ends()
    assert codes == {node: 143 if node in scene.told else 0 for node in codes}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_in_a_row_cost_no_step(frail: Job, etcd: Etcd, seed: int) -> None:
    plays(Scene(frail, etcd), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_in_a_row_leave_the_model_in_memory_as_it_would_be(
    frail_in_place: JobInPlace, etcd: Etcd, seed: int
) -> None:
    nproc = 1 + seed % 2
    plays(Scene(frail_in_place, etcd, script=TRAIN_IN_PLACE, nproc_per_node=nproc), seed)
