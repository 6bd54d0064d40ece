"""A job whose lost nodes are replaced, and the faults that happen to it."""

import itertools
import signal
import time
from collections.abc import Sequence
from typing import TypeVar

from ..integration.cluster import DEADLINE
from ..integration.conftest import Cluster as Etcd
from .job import Job, Worker

NODES = 3
"""At most; one is enough to go on."""


T = TypeVar("T")


def pick_one(candidates: Sequence[T], pick: float) -> T:
    return candidates[int(pick * len(candidates))]


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
        return pick_one(self.staying(), pick)

    def worker(self, pick: float) -> Worker:
        """One of those that run; those of a moment ago may have died of an earlier fault."""
        return pick_one(self.job.wait_until(lambda: self.job.living() or None, "a worker runs"), pick)


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


def master(scene: Scene) -> str:
    """The node that leads, of those that run; there may be none for a moment."""
    until = time.monotonic() + DEADLINE
    while True:
        try:
            name = scene.job.master()
        except AssertionError:
            name = ""
        if name in scene.job.running():
            return name
        if time.monotonic() > until:
            raise scene.job.failed("the job has no master")
        time.sleep(0.05)  # the store would have to be watched for it


def masters_machine_is_lost(scene: Scene, pick: float) -> None:
    scene.job.kill_machine(master(scene))


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
    member = pick_one(scene.etcd.members, pick)
    scene.job.fault(f"etcd's member {member.name} is killed and started again")
    member.kill()
    member.start()
