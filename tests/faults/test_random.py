"""Faults in a row that nobody has thought of, drawn up front from a seed.

The seed is the run's (`tests/sampling.py`), and stands in the name of the test; with ELASTIC_RUN_SOAK=50 there are 50.
"""

import itertools
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

from ..integration.conftest import Cluster as Etcd
from ..sampling import SEEDS, SOAK
from .in_place import TRAIN_IN_PLACE, JobInPlace
from .job import Job, Worker

pytestmark = [pytest.mark.torch, pytest.mark.slow]

IN_A_ROW = 20 if SOAK else 8
"""Faults of one job."""

NODES = 3
"""At most; one is enough to go on."""

T = TypeVar("T")


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


class Scene:
    """A job, and the nodes that take the place of those that go; `options` are what it is started with."""

    def __init__(self, job: Job, etcd: Etcd, **options: object) -> None:
        self.job = job
        self.etcd = etcd
        self.options = options
        self.told: set[str] = set()
        self.names = (f"N{number}" for number in itertools.count(1))

    def fill(self) -> None:
        """New nodes come for those that have gone."""
        missing = NODES - len(self.staying())
        if missing:
            self.job.train(*(next(self.names) for _ in range(missing)), nnodes=f"1:{NODES}", **self.options)

    def staying(self) -> list[str]:
        """The nodes that run and have not been told to go."""
        return [name for name in self.job.running() if name not in self.told]

    def node(self, pick: float) -> str:
        """One of those that take part."""
        for name in self.staying():
            self.job.wait_for_line(name, "waiting|round")
        return _picked(self.staying(), pick)

    def worker(self, pick: float) -> Worker:
        """One of those that run; those of a moment ago may have died of an earlier fault."""
        return _picked(self.job.wait_until(lambda: self.job.living() or None, "a worker runs"), pick)


def worker_is_killed(scene: Scene, pick: float) -> None:
    scene.worker(pick).kill()


def worker_raises(scene: Scene, pick: float) -> None:
    scene.worker(pick).does("raise ValueError('the loss is not a number')")


def worker_exits(scene: Scene, pick: float) -> None:
    scene.worker(pick).does("sys.exit(3)")


def worker_crashes(scene: Scene, pick: float) -> None:
    scene.worker(pick).does("import ctypes; ctypes.string_at(0)")


def agent_is_killed(scene: Scene, pick: float) -> None:
    scene.job.kill_agent(scene.node(pick))


def machine_is_lost(scene: Scene, pick: float) -> None:
    scene.job.kill_machine(scene.node(pick))


def node_is_told_to_go(scene: Scene, pick: float) -> None:
    node = scene.node(pick)
    scene.told.add(node)
    scene.job.send(node, signal.SIGTERM)


def agent_is_stopped_until_its_workers_are_gone(scene: Scene, pick: float) -> None:
    node = scene.node(pick)
    scene.job.send(node, signal.SIGSTOP)
    for worker in scene.job.living():
        if worker.node == node:
            scene.job.gone(worker.pid)
    scene.job.send(node, signal.SIGCONT)


def agent_is_stopped_for_a_moment(scene: Scene, pick: float) -> None:
    node = scene.node(pick)
    scene.job.send(node, signal.SIGSTOP)
    scene.job.send(node, signal.SIGCONT)


def member_of_etcd_is_started_again(scene: Scene, pick: float) -> None:
    member = _picked(scene.etcd.members, pick)
    scene.job.fault(f"etcd's member {member.name} is killed and started again")
    member.kill()
    member.start()


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


def _picked(candidates: Sequence[T], pick: float) -> T:
    return candidates[int(pick * len(candidates))]


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
