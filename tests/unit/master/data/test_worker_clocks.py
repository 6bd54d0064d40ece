"""Who may go on while others are slower, against workers, agents and masters that come and go in any order."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.master.data.worker_clocks import (
    AWAITED_SECONDS,
    SILENT_SECONDS,
    SLOWER,
    NodeClocks,
    WorkerClock,
    WorkerClocks,
)

from ....sampling import examples

MANY = settings(max_examples=examples(3000, 60), deadline=None)

RANKS = {"A": range(2), "B": range(2, 3), "C": range(3, 4)}
"""By node; the incarnation of a node is its name and a number."""


@dataclass
class Worker:
    """One process, which does what `adapters/servers/step_clock.py` does.

    Attributes:
        present: it has been told that others wait for it, and has not said since that it has nothing to do.
        pulled: at its present clock.
    """

    rank: int
    round: int
    clock: int = 0
    lowest: int = 0
    count: int = 0
    works: bool = False
    present: bool = False
    pulled: bool = False

    def say(self) -> WorkerClock:
        self.count += 1
        return WorkerClock(self.rank, self.round, self.count, self.clock, self.works)


@dataclass
class Node:
    """An agent, and what its workers have said last."""

    incarnation: str
    workers: dict[int, Worker]
    last: dict[int, WorkerClock] = field(default_factory=dict[int, WorkerClock])


class Job:
    """Nodes, workers and one master at a time.

    Args:
        bound: of all workers.

    Attributes:
        now: seconds.
        begun: steps that workers have begun.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.now = 0.0
        self.begun = 0
        self.round = 1
        self.lives = 0
        self.nodes: dict[str, Node] = {}
        for name in RANKS:
            self.start(name)
        self.clocks = WorkerClocks((), self.now)

    @property
    def workers(self) -> list[Worker]:
        return [each for node in self.nodes.values() for each in node.workers.values()]

    def start(self, name: str) -> None:
        if name not in self.nodes:
            self.lives += 1
            workers = {rank: Worker(rank, self.round) for rank in RANKS[name]}
            self.nodes[name] = Node(f"{name}{self.lives}", workers)

    def lose(self, name: str) -> None:
        if len(self.nodes) > 1 and self.nodes.pop(name, None):
            self.round += 1
            self.look()

    def replace_master(self) -> None:
        """The new one knows who was in the round, and nothing else."""
        self.clocks = WorkerClocks([node.incarnation for node in self.nodes.values()], self.now)

    def look(self) -> None:
        ranks = {node.incarnation: RANKS[name] for name, node in self.nodes.items()}
        rounds = {node.incarnation: min(each.round for each in node.workers.values()) for node in self.nodes.values()}
        lowest = self.clocks.raise_lowest(ranks, rounds.__getitem__, (), self.now)
        assert lowest == self.clocks.lowest
        for each in self.workers:
            each.present = each.present and each.rank not in self.clocks.silent
            assert not each.present or each.clock >= lowest, "the lowest clock is that of who is present"

    def tell(self, name: str, asker: Worker | None = None) -> None:
        """The agent tells the master everything; the answer goes to the worker that has asked."""
        if name not in self.nodes:
            return
        node = self.nodes[name]
        known = max((each.lowest for each in node.workers.values()), default=0)
        if self.clocks.hear_node(node.incarnation, NodeClocks(tuple(node.last.values()), known), self.now):
            self.look()
        if asker:
            asker.lowest = max(asker.lowest, self.clocks.lowest)
            asker.clock = max(asker.clock, asker.lowest)
            asker.present = asker.works and (asker.present or self.clocks.is_known(self.now))

    def say(self, name: str, worker: Worker, *, told: bool = True) -> None:
        self.nodes[name].last[worker.rank] = worker.say()
        if told:
            self.tell(name, worker)

    def step(self, name: str, worker: Worker, *, told: bool = True) -> bool:
        """Pulls where it may, else pushes what it has pulled; whether either was possible."""
        worker.works = True
        if not worker.present:
            self.say(name, worker)
            if not worker.present:
                return False
        if worker.pulled:
            worker.pulled = False
            worker.clock += 1
            self.say(name, worker, told=told)
            return True
        if worker.lowest < worker.clock - self.bound:
            self.say(name, worker)
        if worker.lowest < worker.clock - self.bound:
            return False
        worker.pulled = True
        self.begun += 1
        behind = [each for each in self.workers if each.present and each.clock < worker.clock - self.bound]
        assert not behind, f"{worker} begins a step, and too far behind are {behind}"
        return True

    def rest(self, name: str, worker: Worker) -> None:
        worker.works = worker.present = worker.pulled = False
        self.say(name, worker)


def find(job: Job, rank: int) -> tuple[str, Worker] | None:
    return next(((name, node.workers[rank]) for name, node in job.nodes.items() if rank in node.workers), None)


EVENTS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("step, and the agent's message is late"), st.integers(0, 3)),
    st.tuples(st.just("rest"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["lose", "start", "tell"]), st.sampled_from("ABC")),
    st.tuples(st.just("replace master"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, AWAITED_SECONDS, SILENT_SECONDS])),
)


def happen(job: Job, event: tuple[str, object]) -> None:
    match event:
        case "step" | "step, and the agent's message is late", int(rank):
            if found := find(job, rank):
                job.step(*found, told=event[0] == "step")
        case "rest", int(rank):
            if found := find(job, rank):
                job.rest(*found)
        case "lose", str(name):
            job.lose(name)
        case "start", str(name):
            job.start(name)
        case "tell", str(name):
            job.tell(name)
        case "wait", float(seconds):
            for each in job.nodes:  # agents speak each second
                job.tell(each)
            job.now += seconds
            job.look()
        case _:
            job.replace_master()


@given(st.integers(0, 3), st.lists(EVENTS, max_size=200))
@MANY
def test_no_present_worker_is_ever_further_behind_than_the_bound(bound: int, events: list[tuple[str, object]]) -> None:
    job = Job(bound)
    for event in events:
        happen(job, event)


@given(st.integers(0, 3), st.lists(EVENTS, max_size=100), st.lists(st.integers(0, 3), min_size=1, max_size=40))
@MANY
def test_whoever_has_the_lowest_clock_goes_on_whatever_has_happened(
    bound: int, events: list[tuple[str, object]], turns: list[int]
) -> None:
    job = Job(bound)
    for event in events:
        happen(job, event)
    happen(job, ("wait", AWAITED_SECONDS))
    before = job.begun
    for rank in [*turns, *range(4), *range(4)]:
        if found := find(job, rank):
            job.step(*found)
    job.now += SILENT_SECONDS * SLOWER * 2  # whoever has not had a turn is silent
    job.look()
    for rank in range(4):
        if found := find(job, rank):
            job.step(*found)
    assert job.begun > before


# -- single cases -----------------------------------------------------------------------------------------------------


def tell(clocks: WorkerClocks, *said: WorkerClock, now: float = 0.0, incarnation: str = "A1", lowest: int = 0) -> None:
    clocks.hear_node(incarnation, NodeClocks(said, lowest), now)
    look(clocks, now)


def look(clocks: WorkerClocks, now: float = 0.0, ranks: range = range(4), ended: tuple[int, ...] = ()) -> int:
    return clocks.raise_lowest({"A1": ranks, "B1": ranks}, lambda _: 1, ended, now)


def test_the_slowest_is_named_with_what_is_wanted_of_it() -> None:
    clocks = WorkerClocks((), 0.0)
    tell(clocks, WorkerClock(0, 1, 1, 9), WorkerClock(1, 1, 1, 4), WorkerClock(2, 1, 1, 4))
    assert clocks.explain(7, 0.0) == (
        "ranks 1, 2 have made 4 pushes, and within max_staleness this worker goes on when all have made 7"
    )


def test_a_newcomer_begins_at_the_lowest_clock_and_holds_nobody_back() -> None:
    clocks = WorkerClocks((), 0.0)
    tell(clocks, WorkerClock(0, 1, 1, 5), WorkerClock(1, 1, 1, 7))
    tell(clocks, WorkerClock(2, 2, 1, 0))
    assert clocks.lowest == 5
    tell(clocks, WorkerClock(0, 1, 2, 6))
    assert clocks.lowest == 5  # now the newcomer is the slowest
    tell(clocks, WorkerClock(2, 2, 2, 6))
    assert clocks.lowest == 6


@pytest.mark.parametrize("how", ["ended", "lost", "started anew", "without work"])
def test_who_is_not_there_any_more_holds_nobody_back(how: str) -> None:
    clocks = WorkerClocks((), 0.0)
    tell(clocks, WorkerClock(0, 1, 1, 9), WorkerClock(1, 1, 1, 4))
    match how:
        case "ended":
            look(clocks, ended=(1,))
        case "lost":
            look(clocks, ranks=range(1))
        case "started anew":
            clocks.raise_lowest({"A1": range(4)}, lambda _: 2, (), 0.0)
            tell(clocks, WorkerClock(0, 2, 1, 0, works=False))
            assert clocks.lowest == 4  # nobody is present, and it falls for nobody
            return
        case _:
            tell(clocks, WorkerClock(1, 1, 2, 4, works=False))
    assert clocks.lowest == 9


def test_a_silent_worker_holds_others_back_for_a_while_and_the_longer_the_longer_steps_take() -> None:
    clocks = WorkerClocks((), 0.0)
    slow, fast = WorkerClock(1, 1, 1, 0), WorkerClock(0, 1, 1, 0)
    tell(clocks, fast, slow)
    tell(clocks, replace(fast, count=2, clock=1), now=50.0)
    tell(clocks, replace(fast, count=3, clock=1), now=50.0 * SLOWER - 1)  # it waits
    assert (clocks.lowest, clocks.silent) == (0, frozenset())
    tell(clocks, replace(fast, count=4, clock=1), now=50.0 * SLOWER)
    assert (clocks.lowest, clocks.silent) == (1, {1})
    tell(clocks, replace(slow, count=2, clock=1), now=50.0 * SLOWER)
    tell(clocks, replace(fast, count=5, clock=2), now=50.0 * SLOWER)
    assert (clocks.lowest, clocks.silent) == (1, frozenset())  # it is back, at the lowest clock


def test_a_new_master_waits_for_the_agents_of_an_earlier_one_and_not_for_ever() -> None:
    clocks = WorkerClocks(["A1", "B1"], 0.0)
    tell(clocks, WorkerClock(0, 1, 7, 9), lowest=6)
    assert clocks.lowest == 6
    assert clocks.explain(8, 0.0) == "1 nodes have not told the job's new master yet how far their workers are"
    tell(clocks, WorkerClock(1, 1, 7, 7), incarnation="B1", lowest=5)
    assert clocks.lowest == 7
    alone = WorkerClocks(["A1", "C1"], 0.0)
    tell(alone, WorkerClock(0, 1, 7, 9))
    assert alone.lowest == 9  # node C is lost
    late = WorkerClocks(["A1", "B1"], 0.0)
    tell(late, WorkerClock(0, 1, 7, 9), lowest=6, now=AWAITED_SECONDS)
    assert late.lowest == 9


def test_what_an_agent_tells_late_changes_nothing() -> None:
    clocks = WorkerClocks((), 0.0)
    tell(clocks, WorkerClock(0, 1, 2, 2), WorkerClock(1, 1, 1, 5))
    tell(clocks, WorkerClock(0, 1, 1, 1, works=False))
    assert clocks.lowest == 2
    tell(clocks, WorkerClock(0, 1, 3, 3))
    assert clocks.lowest == 3
