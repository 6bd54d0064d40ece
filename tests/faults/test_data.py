"""The histogram proof: whatever happens to a job, each record of each epoch is in its result exactly once.

First random faults, drawn up front from a seed as in `test_random.py`.
Then the moments that matter, one by one: a process dies exactly there (`failpoint.py`).
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..integration.cluster import DEADLINE
from ..integration.conftest import Cluster as Etcd
from ..sampling import SEEDS, SOAK
from .conftest import broken, explaining
from .counted import LEASED, LOCKSTEP, OUTPUTS, Counted, Kind
from .failpoint import LAUNCHER, READING, WRITES, deposed_point, write_point
from .scene import (
    Scene,
    agent_is_killed,
    agent_is_stopped_until_its_workers_are_gone,
    machine_is_lost,
    member_of_etcd_is_started_again,
    node_is_told_to_go,
    worker_exits,
    worker_is_killed,
    worker_raises,
)

pytestmark = [pytest.mark.torch, pytest.mark.slow]

IN_A_ROW = 8 if SOAK else 4
"""Faults of one job; one of them takes the master's machine."""

LAST_CALL = 5.0
"""Seconds that a first round waits for the third node; far below the deadline of every wait here."""

LOCKSTEPS = (
    Kind("count_lockstep.py", options=("--loader-workers=2",)),
    Kind("count_lockstep.py", options=("--accumulate=2", "--batch-size=3")),
    Kind("count_lockstep.py", options=("--fixed-global-batch=10", "--batch-size=2")),
    Kind("count_lockstep.py", options=("--batch-size=7",)),
)
"""By seed, one after the other. No batch divides the records, nor does any number of ranks."""


@pytest.fixture
def frail(
    tmp_path: Path, etcd: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[Counted]:
    """One job on a store of its own, to be hurt."""
    made = Counted(tmp_path / "job", broken(request), inject, etcd=etcd)
    with explaining(made):
        yield made


@pytest.fixture
def job(
    tmp_path: Path, quorum: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[Counted]:
    """One job on a store that is not touched."""
    made = Counted(tmp_path / "job", broken(request), inject, etcd=quorum)
    with explaining(made):
        yield made


# -- random faults ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """One fault of a schedule.

    Attributes:
        fault: its name.
        pick: in 0..1, whom it happens to of those that are there.
        after: how far the job must have come since the fault before: "anything", "workers" run, or it "trains".
        nodes: how many there are to be afterwards, at least; new ones come.
    """

    fault: str
    pick: float
    after: str
    nodes: int


def masters_machine_is_lost(scene: Scene, pick: float) -> None:
    scene.job.kill_machine(master(scene))


FAULTS: dict[str, Callable[[Scene, float], None]] = {
    fault.__name__: fault
    for fault in (
        worker_is_killed,
        worker_raises,
        worker_exits,
        agent_is_killed,
        machine_is_lost,
        masters_machine_is_lost,
        node_is_told_to_go,
        agent_is_stopped_until_its_workers_are_gone,
        member_of_etcd_is_started_again,
    )
}


def schedule(kind: Kind, seed: int) -> list[Turn]:
    """The faults of one seed: other ones for each script."""
    draw = random.Random(f"{kind.script} {seed}")
    faults = draw.choices(sorted(FAULTS), k=IN_A_ROW - 1)
    faults.insert(draw.randrange(IN_A_ROW), masters_machine_is_lost.__name__)
    after = ("anything", "workers", "trains", "trains")
    return [Turn(fault, draw.random(), draw.choice(after), draw.choice((2, 3))) for fault in faults]


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


def survives(job: Counted, etcd: Etcd, kind: Kind, seed: int) -> None:
    """Does all of a seed to a job of that kind; what is in its result, the job checks at its end."""
    job.kind = kind
    scene = Scene(job, etcd)

    def fill(nodes: int) -> None:
        missing = nodes - len(scene.staying())
        if missing > 0:
            # Where only nodes that waited are left, they begin as at the first round: two wait for a third.
            names = [next(scene.names) for _ in range(missing)]
            job.train(*names, nnodes="1:3", conf={"last_call_timeout": LAST_CALL})

    fill(3)
    for turn in schedule(kind, seed):
        if turn.after == "trains":
            job.advances(5)
        if turn.after == "workers" or not job.living():
            job.worker(0)
        FAULTS[turn.fault](scene, turn.pick)
        fill(turn.nodes)
    job.advances()
    codes = job.ends()
    assert codes == {node: 143 if node in scene.told else 0 for node in codes}
    assert any(code == 0 for code in codes.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_lockstep_trains_on_each_record_once_an_epoch(frail: Counted, etcd: Etcd, seed: int) -> None:
    survives(frail, etcd, LOCKSTEPS[seed % len(LOCKSTEPS)], seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_leased_shards_are_trained_on_once_an_epoch(frail: Counted, etcd: Etcd, seed: int) -> None:
    survives(frail, etcd, LEASED, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_shards_have_one_output_each(frail: Counted, etcd: Etcd, seed: int) -> None:
    survives(frail, etcd, OUTPUTS, seed)


# -- a worker dies exactly there --------------------------------------------------------------------------------------

POINTS = [
    (LOCKSTEP, "between the optimizer's step and commit, rank 1"),
    (LOCKSTEP, "between commit and checkpoint, rank 0"),
    (LOCKSTEP, "between a checkpoint and its rename"),
    (LEASED, "between the optimizer's step and progress, rank 1"),
    (LEASED, "between progress and state_dict, rank 1"),
    (LEASED, "before its vote, which another rank has given, rank 1"),
    (LEASED, "between state_dict and checkpoint, rank 1"),
    (LEASED, "between a checkpoint and its rename"),
    (OUTPUTS, "between an output and its rename, rank 1"),
    (OUTPUTS, "between the rename and done, rank 1"),
    (OUTPUTS, "between done and the next request, rank 1"),
]


LEDGERS = [(LEASED, "a cut"), (OUTPUTS, "leases"), (LEASED, "leases")]
"""What is written. The last is worth nothing to the next round, and all to the next master of the same one."""


@pytest.mark.parametrize("kind", [LOCKSTEP, LEASED, OUTPUTS], ids=["lockstep", "leased", "outputs"])
def test_masters_are_deposed_around_writes_and_workers_die_at_the_worst_moments(job: Counted, kind: Kind) -> None:
    job.kind = kind
    job.train("A", "B", nnodes=2, prefix=LAUNCHER)
    for what in (what for of, what in LEDGERS if of is kind):
        masters_are_deposed_around_a_write_and_the_round_goes_on(job, what)
    for round, point in enumerate((point for of, point in POINTS if of is kind), 1):
        job.advances(5)
        job.worker(1)
        job.happens(point)
        assert "died by SIGKILL" in job.cause(round + 1)
    job.advances(5)
    assert job.ends() == {"A": 0, "B": 0}


DEPOSED = "no longer runs here"
"""What an agent says whose master another one has replaced."""


def masters_are_deposed_around_a_write_and_the_round_goes_on(job: Counted, what: str) -> None:
    workers = [job.worker(rank).pid for rank in range(2)]
    before = (job.log("A") + job.log("B")).count(DEPOSED)
    for when in WRITES:
        job.advances(5)
        job.happens(deposed_point(when, what))
    job.advances(5)
    assert [worker.pid for worker in job.living()] == workers
    assert (job.log("A") + job.log("B")).count(DEPOSED) > before


# -- workers that need nobody ------------------------------------------------------------------------------------------


def test_workers_that_need_nobody_come_and_go_and_the_others_keep_their_process_and_their_shards(job: Counted) -> None:
    job.kind = OUTPUTS
    job.train("A", "B", "C", env={}, roles="worker:2:3", role_options="worker:on-loss=one")
    workers = [job.worker_of(node) for node in "ABC"]
    pids = {worker.node: worker.pid for worker in workers}
    ranks = {worker.node: worker.puppet.rank for worker in workers}
    assert sorted(ranks.values()) == [0, 1, 2]

    def others_continue(*touched: str) -> None:
        job.advances(20)
        now = {worker.node: worker.pid for worker in job.living()}
        assert {node: pid for node, pid in now.items() if node not in touched} == pids

    lost = job.stays()
    job.kill_agent(lost)
    assert "was lost" in job.cause(2)
    del pids[lost]
    others_continue()
    job.train("D")
    assert job.worker_of("D").puppet.rank == ranks[lost]
    others_continue("D")
    hurt = job.stays("D")
    job.worker_of(hurt).kill()
    assert "died by SIGKILL" in job.cause(4)
    pids = {"D": job.worker_of("D").pid, **{node: pid for node, pid in pids.items() if node != hurt}}
    others_continue(hurt)
    assert job.worker_of(hurt).puppet.rank == ranks[hurt]
    master = job.master()
    job.kill_machine(master)
    del pids[master]
    others_continue(hurt)
    codes = job.ends()
    assert codes == {"D": 0, hurt: 0}


# -- the master dies exactly there ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "what"), LEDGERS[:2], ids=["a cut", "acknowledged"])
def test_the_masters_node_dies_around_a_write_of_its_ledgers_and_while_it_reads_them(
    job: Counted, kind: Kind, what: str
) -> None:
    job.kind = kind
    job.train("A", "B", nnodes="1:3", prefix=LAUNCHER)
    for newcomer, when in zip("CDE", WRITES, strict=True):
        job.worker(1)
        job.advances(5)
        job.agent_dies_at(write_point(when, what))
        job.train(newcomer, prefix=LAUNCHER)
    job.train("F", prefix=LAUNCHER)
    job.worker(2)
    job.advances(5)
    job.kill_machine(job.master())
    job.agent_dies_at(READING)
    job.advances(5)
    (last,) = job.running()
    assert job.ends() == {last: 0}
