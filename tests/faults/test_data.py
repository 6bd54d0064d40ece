"""The histogram proof: whatever happens to a job, each record of each epoch is in its result exactly once.

First random faults, drawn up front from a seed as in `test_random.py`.
Then the moments that matter, one by one: a process dies exactly there (`failpoint.py`).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ..integration.conftest import Cluster as Etcd
from ..sampling import SEEDS, SOAK
from .counted import LEASED, LOCKSTEP, OUTPUTS, Counted, Kind
from .failpoint import LAUNCHER, READING, WRITES, deposed_point, write_point
from .scene import (
    Scene,
    agent_is_killed,
    agent_is_stopped_until_its_workers_are_gone,
    machine_is_lost,
    masters_machine_is_lost,
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


def survives(counted: Counted, etcd: Etcd, kind: Kind, seed: int) -> None:
    """Does all of a seed to a job of that kind; what is in its result, the job checks at its end."""
    counted.kind = kind
    scene = Scene(counted, etcd)

    def fill(nodes: int) -> None:
        missing = nodes - len(scene.staying())
        if missing > 0:
            # Where only nodes that waited are left, they begin as at the first round: two wait for a third.
            names = [next(scene.names) for _ in range(missing)]
            counted.train(*names, nnodes="1:3", conf={"last_call_timeout": LAST_CALL})

    fill(3)
    for turn in schedule(kind, seed):
        if turn.after == "trains":
            counted.advances(5)
        if turn.after == "workers" or not counted.living():
            counted.worker(0)
        FAULTS[turn.fault](scene, turn.pick)
        fill(turn.nodes)
    counted.advances()
    codes = counted.ends()
    assert codes == {node: 143 if node in scene.told else 0 for node in codes}
    assert any(code == 0 for code in codes.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_lockstep_trains_on_each_record_once_an_epoch(frail_counted: Counted, etcd: Etcd, seed: int) -> None:
    survives(frail_counted, etcd, LOCKSTEPS[seed % len(LOCKSTEPS)], seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_leased_shards_are_trained_on_once_an_epoch(frail_counted: Counted, etcd: Etcd, seed: int) -> None:
    survives(frail_counted, etcd, LEASED, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_shards_have_one_output_each(frail_counted: Counted, etcd: Etcd, seed: int) -> None:
    survives(frail_counted, etcd, OUTPUTS, seed)


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
def test_masters_are_deposed_around_writes_and_workers_die_at_the_worst_moments(counted: Counted, kind: Kind) -> None:
    counted.kind = kind
    counted.train("A", "B", nnodes=2, prefix=LAUNCHER)
    for what in (what for of, what in LEDGERS if of is kind):
        masters_are_deposed_around_a_write_and_the_round_goes_on(counted, what)
    for round, point in enumerate((point for of, point in POINTS if of is kind), 1):
        counted.advances(5)
        counted.worker(1)
        counted.happens(point)
        assert "died by SIGKILL" in counted.cause(round + 1)
    counted.advances(5)
    assert counted.ends() == {"A": 0, "B": 0}


DEPOSED = "no longer runs here"
"""What an agent says whose master another one has replaced."""


def masters_are_deposed_around_a_write_and_the_round_goes_on(counted: Counted, what: str) -> None:
    workers = [counted.worker(rank).pid for rank in range(2)]
    before = (counted.log("A") + counted.log("B")).count(DEPOSED)
    for when in WRITES:
        counted.advances(5)
        counted.happens(deposed_point(when, what))
    counted.advances(5)
    assert [worker.pid for worker in counted.living()] == workers
    assert (counted.log("A") + counted.log("B")).count(DEPOSED) > before


# -- workers that need nobody ------------------------------------------------------------------------------------------


def test_workers_that_need_nobody_come_and_go_and_the_others_keep_their_process_and_their_shards(
    counted: Counted,
) -> None:
    counted.kind = OUTPUTS
    counted.train("A", "B", "C", env={}, roles="worker:2:3", role_options="worker:on-loss=one")
    workers = [counted.worker_of(node) for node in "ABC"]
    pids = {worker.node: worker.pid for worker in workers}
    ranks = {worker.node: worker.puppet.rank for worker in workers}
    assert sorted(ranks.values()) == [0, 1, 2]

    def others_continue(*touched: str) -> None:
        counted.advances(20)
        now = {worker.node: worker.pid for worker in counted.living()}
        assert {node: pid for node, pid in now.items() if node not in touched} == pids

    lost = counted.stays()
    counted.kill_agent(lost)
    assert "was lost" in counted.cause(2)
    del pids[lost]
    others_continue()
    counted.train("D")
    assert counted.worker_of("D").puppet.rank == ranks[lost]
    others_continue("D")
    hurt = counted.stays("D")
    counted.worker_of(hurt).kill()
    assert "died by SIGKILL" in counted.cause(4)
    pids = {"D": counted.worker_of("D").pid, **{node: pid for node, pid in pids.items() if node != hurt}}
    others_continue(hurt)
    assert counted.worker_of(hurt).puppet.rank == ranks[hurt]
    master = counted.master()
    counted.kill_machine(master)
    del pids[master]
    others_continue(hurt)
    codes = counted.ends()
    assert codes == {"D": 0, hurt: 0}


# -- the master dies exactly there ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "what"), LEDGERS[:2], ids=["a cut", "acknowledged"])
def test_the_masters_node_dies_around_a_write_of_its_ledgers_and_while_it_reads_them(
    counted: Counted, kind: Kind, what: str
) -> None:
    counted.kind = kind
    counted.train("A", "B", nnodes="1:3", prefix=LAUNCHER)
    for newcomer, when in zip("CDE", WRITES, strict=True):
        counted.worker(1)
        counted.advances(5)
        counted.agent_dies_at(write_point(when, what))
        counted.train(newcomer, prefix=LAUNCHER)
    counted.train("F", prefix=LAUNCHER)
    counted.worker(2)
    counted.advances(5)
    counted.kill_machine(counted.master())
    counted.agent_dies_at(READING)
    counted.advances(5)
    (last,) = counted.running()
    assert counted.ends() == {last: 0}
