"""The real master on a store in memory, with members that are only reports, on a clock that jumps.

The clock moves only when nothing else can happen, so a minute passes at once, and a wait without end is an error.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import pytest

from elastic_run.elastic_agent.candidate import Candidacy, Candidate
from elastic_run.elastic_agent.machine import actions
from elastic_run.elastic_agent.machine import plan as agent_plan
from elastic_run.elastic_agent.machine.node_state import KnownRound, NodeKey, NodeState
from elastic_run.master import master as master_module
from elastic_run.master.data.ledger import Dataset, Request
from elastic_run.master.data.worker_clocks import NodeClocks, WorkerClock
from elastic_run.master.machine import controller
from elastic_run.master.machine.controller import Terms
from elastic_run.master.machine.membership import RETURN_SECONDS, SILENT_SECONDS
from elastic_run.master.machine.memory import Memory
from elastic_run.master.master import Master
from elastic_run.master.publish import WORDS, Publisher
from elastic_run.rendezvous import election, membership
from elastic_run.rendezvous.base.errors import Deposed, Refused, StoreUnavailable
from elastic_run.rendezvous.header import Header, Leader, Tally
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report, describe_difference
from elastic_run.rendezvous.node_reasons import PreemptionNotice, ProcessGone, StartFailed
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import AllJoined, Reason
from elastic_run.rendezvous.round import Decision, Policy, Survey, decide
from elastic_run.rendezvous.rpc.envelope import Caller
from elastic_run.rendezvous.store.contract import Compare, Delete, Operation, Put, TxnResult
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.waits import Waits
from elastic_run.rendezvous.wire.values import decode, encode

from ..doubles.virtual_loop import VirtualLoop

FINGERPRINT = Fingerprint("train.py", ("--lr", "0.1"), "2:3", "1", "0")
LONG = 10**6
GONE = ProcessGone("127.0.0.1:1")
"""Seconds: the lease of a node that somebody keeps alive."""


class SometimesAway(MemoryStore):
    """A store that says when it was last away."""

    away = -math.inf

    @property
    def away_until(self) -> float:
        return self.away


@dataclass
class Job:
    """One job: its store, its masters and what they said."""

    policy: Policy = field(default_factory=lambda: Policy(min_nodes=2, max_nodes=3))
    max_restarts: int = 3
    same_failure_limit: int = 0
    fingerprint: Fingerprint = FINGERPRINT
    store: SometimesAway = field(default_factory=SometimesAway)
    keys: Keys = field(default_factory=lambda: Keys("job"))
    said: list[str] = field(default_factory=list[str])
    dead: dict[str, asyncio.Future[ProcessGone]] = field(default_factory=dict[str, asyncio.Future[ProcessGone]])
    watched: set[str] = field(default_factory=set[str])
    unwatchable: set[str] = field(default_factory=set[str])
    leaders: list[Master] = field(default_factory=list[Master])
    answering: set[str] = field(default_factory=set[str])
    masters: list[asyncio.Task[Header]] = field(default_factory=list[asyncio.Task[Header]])
    abandoned: dict[str, float] = field(default_factory=dict[str, float])
    lives: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def join(self, name: str, *, fingerprint: Fingerprint | None = None, **more: Any) -> "Node":
        """Registers a node under a lease of its own. `more`: fields of Member."""
        lease = await self.store.grant(LONG)
        incarnation = f"{name}#{next(self.lives)}"
        member = Member(
            name, incarnation, f"{name}.host", incarnation, 1, (5001, 5002), fingerprint or self.fingerprint, **more
        )
        registration = await membership.register(self.store, self.keys, member, lease)
        return Node(self, registration, incarnation, asyncio.get_running_loop().time())

    async def nodes(self, names: str) -> list["Node"]:
        return [await self.join(name) for name in names]

    async def elect(self, node: "Node") -> election.Leadership:
        me = Leader(node.registration.member.node, node.incarnation, node.incarnation)
        header = await self.store.get(self.keys.round)
        revision = header.mod_revision if header else 0
        won = await election.campaign(self.store, self.keys, me, node.registration.lease, after_success=revision)
        assert isinstance(won, election.Leadership)
        return won

    def master(self, node: "Node", leadership: election.Leadership, **terms: Any) -> asyncio.Task[Header]:
        """Starts a master in `node`."""
        publisher = Publisher(self.store, self.keys, leadership, node.registration.lease, 0)
        values = Terms(self.policy, self.max_restarts, self.same_failure_limit, self.fingerprint)
        values = dataclasses.replace(values, **terms)
        clock = asyncio.get_running_loop().time
        leader = Master(
            self.store,
            self.keys,
            publisher,
            values,
            say=self.said.append,
            now=clock,
            waits=Waits(self.said.append, clock),
            watch=self.watch,
            hear=self.hear,
            memory=Memory(node.began, abandoned=self.abandoned),
        )
        self.leaders.append(leader)
        self.masters.append(asyncio.create_task(leader.run(), name=f"master in {node.registration.member.node}"))
        return self.masters[-1]

    async def lead(self, node: "Node", **terms: Any) -> asyncio.Task[Header]:
        return self.master(node, await self.elect(node), **terms)

    async def depose(self, node: "Node") -> bool:
        """What another agent does when it has proof that the master's process is dead."""
        held = await self.store.get(self.keys.leader)
        assert held is not None
        lease = await self.store.grant(LONG)
        return await election.depose(self.store, self.keys, held, decode(Leader, held.value), GONE, lease)

    async def kill_master(self, node: "Node") -> None:
        """The master's process dies; another agent deposes it."""
        self.masters[-1].cancel()
        await asyncio.gather(self.masters[-1], return_exceptions=True)
        assert await self.depose(node)

    async def watch(self, agent_address: str, incarnation: str) -> str:
        if incarnation.partition("#")[0] in self.unwatchable:
            raise UnicodeError(f"label empty or too long: {agent_address}")
        self.watched.add(incarnation)
        try:
            return await asyncio.shield(self.death_of(incarnation))
        finally:
            self.watched.discard(incarnation)

    async def hear(self, agent_address: str, incarnation: str) -> None:
        if incarnation not in self.answering:
            await asyncio.get_running_loop().create_future()

    def death_of(self, incarnation: str) -> asyncio.Future[ProcessGone]:
        if incarnation not in self.dead:
            self.dead[incarnation] = asyncio.get_running_loop().create_future()
        return self.dead[incarnation]

    async def header(self, number: int) -> Header:
        """The header of that number, as soon as it is published."""
        async with contextlib.aclosing(self._headers()) as headers:
            async for header in headers:
                if header.number == number:
                    return header
        raise AssertionError("a watch has no end")

    async def _headers(self) -> AsyncGenerator[Header, None]:
        async for events in self.store.watch(self.keys.round, 1):
            for event in events:
                if event.kind == "put":
                    yield decode(Header, event.kv.value)

    async def now(self) -> Header | None:
        found = await membership.read_header(self.store, self.keys)
        return found[0] if found else None

    async def in_round(self, header: Header) -> list[str]:
        """The incarnations that `header` gives a part to, in rank order."""
        items = (await self.store.list(f"{self.keys.assignments}{header.prefix}/")).items
        found = sorted((decode(Assignment, item.value) for item in items), key=lambda each: each.group_rank)
        assert len(found) == header.nodes
        return [assignment.incarnation for assignment in found]

    async def left_over(self) -> list[str]:
        return [item.key.removeprefix(self.keys.root) for item in (await self.store.list(self.keys.root)).items]


@dataclass
class Node:
    """A member that is only its reports."""

    job: Job
    registration: membership.Registration
    incarnation: str
    began: float

    async def report(self, report: Report, ports: tuple[int, ...] = (5001, 5002)) -> None:
        updated = await membership.report(self.job.store, self.job.keys, self.registration, report, ports)
        assert updated is not None, "this node is no longer registered"
        self.registration = updated

    async def run(self, round: int) -> None:
        await self.report(Report("running", round))

    async def fail(
        self, round: int, message: str = "ValueError: no", *, signal: int | None = None, rank: int = 0
    ) -> None:
        exit_ = Exit(round, rank, 0, 1, code=None if signal else 1, signal=signal, message=message, seconds=5.0)
        await self.report(Report("failed", round, (exit_,)))

    async def succeed(self, round: int) -> None:
        await self.report(Report("succeeded", round, (Exit(round, 0, 0, 1, code=0),)))

    async def leave(self, round: int) -> None:
        await self.report(Report("leaving", round, (), PreemptionNotice(15)))

    async def go(self) -> None:
        """Takes itself out of the store, in order."""
        await membership.deregister(self.job.store, self.registration)

    async def die(self) -> None:
        """Its process dies; whoever watches it has the proof."""
        self.job.death_of(self.incarnation).set_result(GONE)

    async def come_back(self) -> None:
        """Takes up its registration again, as the same incarnation."""
        found = await membership.read_header(self.job.store, self.job.keys)
        resumed = await membership.resume(
            self.job.store, self.job.keys, self.registration, await self.job.store.grant(LONG), found[1] if found else 0
        )
        assert isinstance(resumed, membership.Registration)
        self.registration = resumed

    async def fall_silent(self) -> None:
        """Its lease ends; nobody has any proof."""
        await self.job.store.revoke(self.registration.lease)


def simulate(scenario: Callable[[Job], Coroutine[Any, Any, None]], **job: Any) -> None:
    """Runs `scenario` on a fresh job, then ends its masters, and expects that they leave no task and no error."""
    errors: list[str] = []

    async def run() -> None:
        world = Job(**job)
        await scenario(world)
        for master in world.masters:
            master.cancel()
        ended = await asyncio.gather(*world.masters, return_exceptions=True)
        await quiet()
        left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks without an owner: {left}"
        unexpected = [end for end in ended if isinstance(end, Exception) and not isinstance(end, Deposed)]
        assert not unexpected

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: errors.append(str(context)))
        runner.run(run())
    assert not errors


async def quiet() -> None:
    """Everything that can happen at this moment has happened: the clock moves only then."""
    await asyncio.sleep(1e-6)


async def later(seconds: float) -> None:
    """`seconds` pass, on the clock that jumps."""
    await asyncio.sleep(seconds)


def about(seconds: float, wanted: float) -> bool:
    """`wanted` seconds, give or take the moments in which everything else happened."""
    return abs(seconds - wanted) < 0.01


def clock() -> float:
    return asyncio.get_running_loop().time()


async def running_job(job: Job, names: str = "ab", standbys: str = "") -> list[Node]:
    """A job whose round 1 runs on `names`, led by the first of them."""
    nodes = await job.nodes(names)
    await job.lead(nodes[0])
    header = await job.header(1)
    assert header.nodes == len(names)
    for node in nodes:
        await node.run(1)
    nodes += await job.nodes(standbys)
    await quiet()
    return nodes


def incarnations(nodes: Sequence[Node]) -> list[str]:
    return [node.incarnation for node in nodes]


class TestTheFirstRound:
    def test_opens_at_once_when_the_maximum_is_in(self) -> None:
        async def scenario(job: Job) -> None:
            nodes = await job.nodes("abc")
            await job.lead(nodes[1])
            header = await job.header(1)
            assert clock() == 0.0
            assert await job.in_round(header) == incarnations(nodes)
            assert (header.state, header.cause, header.world_size) == ("open", "start", 3)
            assert header.master_addr == "a.host" and header.master_port in (5001, 5002)
            assert header.restart_count == 0 and header.incident is None

        simulate(scenario)

    def test_opens_when_the_last_call_after_the_last_join_is_over(self) -> None:
        async def scenario(job: Job) -> None:
            a = await job.join("a")
            await job.lead(a)
            await later(100)
            b = await job.join("b")
            header = await job.header(1)
            assert about(clock(), 103)
            assert await job.in_round(header) == incarnations([a, b])

        simulate(scenario)

    def test_gives_up_at_the_join_timeout_and_removes_its_keys_when_the_nodes_have_gone(self) -> None:
        async def scenario(job: Job) -> None:
            a = await job.join("a")
            master = await job.lead(a)
            header = await job.header(1)
            assert about(clock(), 600)
            assert header.state == "timeout" and "1 of 2:3" in str(header.reason)
            await a.go()
            await master
            assert await job.left_over() == []

        simulate(scenario)

    def test_tells_a_person_what_it_waits_for(self) -> None:
        async def scenario(job: Job) -> None:
            await job.lead(await job.join("a"))
            await quiet()
            assert any("waiting for 1 more" in line for line in job.said)

        simulate(scenario)

    def test_says_a_thing_once_however_often_the_members_report(self) -> None:
        async def scenario(job: Job) -> None:
            a = await job.join("a")
            await job.lead(a)
            for _ in range(5):
                await a.report(Report("waiting"))
                await quiet()
            assert len([line for line in job.said if "waiting for" in line]) == 1

        simulate(scenario)

    def test_of_many_nodes_that_arrive_one_by_one_costs_less_than_a_look_at_all_for_each(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[int] = []

        async def scenario(job: Job) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)

            def slow(found: Survey, *others: Any) -> tuple[Decision, Reason]:
                looks.append(len(found.present))
                loop.takes(0.02)
                return decide(found, *others)

            monkeypatch.setattr(controller, "decide", slow)
            await job.lead(await job.join("0"))
            for number in range(1, 100):
                await later(0.001)
                await job.join(str(number))
            await job.header(1)

        simulate(scenario, policy=Policy(100, 100))
        assert looks[-1] == 100 and len(looks) < 20


class LateAnswers(MemoryStore):
    """Applies a header at once, and says so five seconds later."""

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        result = await super().txn(compares, operations, idempotent=idempotent)
        if any(isinstance(each, Put) and each.key.endswith("/round") for each in operations):
            await asyncio.sleep(5)
        return result


class NoEvictions(MemoryStore):
    """A store that does not answer where somebody is to be evicted, until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = False

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        if not self.answers and any(isinstance(each, Put) and "/evictions/" in each.key for each in operations):
            raise StoreUnavailable("no answer within 5 s")
        return await super().txn(compares, operations, idempotent=idempotent)


class SlowEvictions(MemoryStore):
    """Applies an eviction at once, and says so five seconds later."""

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        result = await super().txn(compares, operations, idempotent=idempotent)
        if any(isinstance(each, Put) and "/evictions/" in each.key for each in operations):
            await asyncio.sleep(5)
        return result


class TestALoss:
    def test_is_repaired_at_once_on_proof_of_death(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            began = clock()
            await b.die()
            header = await job.header(2)
            assert clock() == began
            assert await job.in_round(header) == incarnations([a, c])
            assert header.cause == "lost" and "b" in str(header.reason) and str(GONE) in str(header.reason)
            assert header.incident and (header.incident.cause, header.incident.node) == ("lost", "b")
            assert header.restart_count == 0
            assert header.previous_nodes == 3

        simulate(scenario)

    def test_leaves_word_for_the_node_that_was_evicted(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, _ = await running_job(job, "abc")
            await b.die()
            await job.header(2)
            word = await membership.read_eviction(job.store, job.keys, b.incarnation)
            assert word is not None and not word.final and word.reason == GONE
            assert await membership.report(job.store, job.keys, b.registration, Report("running", 1), ()) is None

        simulate(scenario)

    def test_that_is_proven_is_repaired_before_the_store_has_taken_the_eviction(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await b.die()
            await a.fail(1, "RuntimeError: Connection reset by peer")
            header = await job.header(2)
            assert await job.store.get(b.registration.key) is not None, "the eviction is still to come"
            assert await job.in_round(header) == incarnations([a, c])
            assert (header.cause, header.restart_count) == ("lost", 0)

        simulate(scenario, store=NoEvictions())

    def test_that_is_proven_while_the_store_does_not_answer_is_written_when_it_does(self) -> None:
        async def scenario(job: Job) -> None:
            assert isinstance(job.store, NoEvictions)
            _, b, _ = await running_job(job, "abc")
            await b.die()
            await later(30)
            job.store.answers = True
            await later(1)
            assert await job.store.get(b.registration.key) is None
            assert await membership.read_eviction(job.store, job.keys, b.incarnation) is not None

        simulate(scenario, store=NoEvictions())

    def test_that_is_written_late_does_not_evict_the_next_life_of_the_node(self) -> None:
        async def scenario(job: Job) -> None:
            assert isinstance(job.store, NoEvictions)
            a, b, c = await running_job(job, "abc")
            await b.die()
            await job.header(2)
            await b.fall_silent()
            reborn = await job.join("b")
            assert reborn.registration.key == b.registration.key
            await later(1)
            job.store.answers = True
            header = await job.header(3)
            assert await job.in_round(header) == incarnations([a, c, reborn])
            await later(30)
            assert await job.now() == header
            assert await job.store.get(reborn.registration.key) is not None

        simulate(scenario, store=NoEvictions())

    def test_that_is_written_late_puts_out_who_has_registered_again_before(self) -> None:
        async def scenario(job: Job) -> None:
            assert isinstance(job.store, NoEvictions)
            _, _, standby = await running_job(job, "ab", standbys="d")
            await standby.die()
            await quiet()
            await standby.fall_silent()
            await standby.come_back()  # the evidence was wrong, and nobody has told it
            await quiet()
            job.store.answers = True
            await later(1)
            assert await job.store.get(standby.registration.key) is None
            assert await membership.read_eviction(job.store, job.keys, standby.incarnation)

        simulate(scenario, store=NoEvictions(), policy=Policy(min_nodes=2, max_nodes=2))

    def test_is_repaired_when_a_lease_ends(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await c.fall_silent()
            header = await job.header(2)
            assert await job.in_round(header) == incarnations([a, b])
            assert "lease" in str(header.reason)

        simulate(scenario)

    def test_lets_a_standby_in(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c, d = await running_job(job, "abc", standbys="d")
            assert any("standby" in line for line in job.said)
            await b.die()
            assert await job.in_round(await job.header(2)) == incarnations([a, c, d])

        simulate(scenario)

    def test_removes_the_assignments_of_the_old_round(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, _ = await running_job(job, "abc")
            await b.die()
            header = await job.header(2)
            kept = [key for key in await job.left_over() if key.startswith("assignments/")]
            assert sorted(kept) == [f"assignments/{header.prefix}/a", f"assignments/{header.prefix}/c"]

        simulate(scenario)

    def test_explains_the_connection_errors_that_arrive_after_it(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await b.die()
            await job.header(2)
            await a.fail(1, "RuntimeError: Connection closed by peer")
            await quiet()
            await c.run(2)
            await later(60)
            await c.die()
            header = await job.header(3)
            assert (header.tally.failures, header.tally.lost) == (0, 1)

        simulate(scenario)

    def test_explains_a_fatal_failure_that_arrived_just_before_it(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.fail(1, "RuntimeError: Connection reset by peer")
            await later(0.5)
            await b.die()
            header = await job.header(2)
            assert (header.state, header.cause, header.restart_count) == ("open", "lost", 0)
            assert await job.in_round(header) == incarnations([a, c])

        simulate(scenario, max_restarts=0)

    def test_explains_a_failure_that_opened_a_round_just_before_it(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, _ = await running_job(job, "abc")
            await a.fail(1, "RuntimeError: Connection reset by peer")
            await job.header(2)
            await later(0.2)
            await b.die()
            header = await job.header(3)
            assert header.restart_count == 1

        simulate(scenario)

    def test_of_a_node_that_is_back_under_its_name_is_a_loss_and_a_join(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job, "ab")
            await b.fall_silent()
            reborn = await job.join("b")
            header = await job.header(2)
            while header.nodes != 2 or header.state != "open":
                header = await job.header(header.number + 1)
            assert await job.in_round(header) == incarnations([a, reborn])

        simulate(scenario)

    def test_of_everybody_but_the_standbys_is_repaired_by_the_standbys(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await job.nodes("ab")
            standby = await job.join("c")
            await job.lead(standby)
            await job.header(1)
            await quiet()
            await a.fall_silent()
            await b.fall_silent()
            header = await job.header(2)
            while await job.in_round(header) != [standby.incarnation]:
                header = await job.header(header.number + 1)
            assert header.cause in ("lost", "start")

        simulate(scenario, policy=Policy(min_nodes=1, max_nodes=2))


class TestADeparture:
    def test_opens_a_round_without_the_leaver_while_it_is_still_there(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await b.leave(1)
            header = await job.header(2)
            assert await job.in_round(header) == incarnations([a, c])
            assert header.cause == "left" and header.incident and header.incident.cause == "left"
            assert header.restart_count == 0
            await b.go()
            await later(60)
            assert await job.now() == header

        simulate(scenario)

    def test_of_the_masters_own_node_is_published_by_it_first(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.leave(1)
            header = await job.header(2)
            assert await job.in_round(header) == incarnations([b, c])
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await a.go()
            await job.lead(b)
            await later(60)
            assert await job.now() == header

        simulate(scenario)

    def test_of_every_node_ends_the_job_as_preempted(self) -> None:
        async def scenario(job: Job) -> None:
            nodes = await running_job(job, "ab")
            await nodes[0].leave(1)
            await nodes[1].leave(1)
            header = await job.header(2)
            if not header.final:
                header = await job.header(3)
            assert header.state == "preempted"
            for node in nodes:
                await node.go()
            await job.masters[0]
            assert await job.left_over() == []

        simulate(scenario)

    def test_explains_the_failures_that_follow_it(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await b.leave(1)
            await job.header(2)
            await a.fail(1, "RuntimeError: Connection closed by peer")
            await quiet()
            await later(30)
            await c.die()
            header = await job.header(3)
            assert (header.tally.failures, header.tally.left) == (0, 1)

        simulate(scenario)

    def test_before_its_workers_were_started_is_counted_as_a_departure(self) -> None:
        async def scenario(job: Job) -> None:
            nodes = await job.nodes("abc")
            await job.lead(nodes[0])
            await job.header(1)
            await nodes[1].leave(0)
            header = await job.header(2)
            assert header.cause == "left"
            assert header.incident is not None and header.incident.cause == "left"

        simulate(scenario)


class TestAWorkerThatEndsWith0:
    def test_is_waited_for_no_longer_than_until_its_exit_is_known(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            master = job.leaders[0]
            first, second = (Caller("run", each.incarnation[0], each.incarnation) for each in (a, b))
            queue = Dataset("queue", size=1, shard_size=1, shards=1, tracking="ack", alone=True)

            def ask(rank: int) -> Request:
                return Request("exchange", "queue", 1, rank, 2, sequence=1, wants=1)

            opened = Request("open", "queue", 1, 1, 2, dataset=queue)
            assert (await master.ledgers.answer(opened, second)).kind == "ok"
            assert (await master.ledgers.answer(ask(1), second)).leases
            await master.clocks.answer(NodeClocks((WorkerClock(1, 1, 1, 0),)), second)
            shard = asyncio.create_task(master.ledgers.answer(ask(0), first))
            step = asyncio.create_task(master.clocks.answer(NodeClocks((WorkerClock(0, 1, 1, 2),), wants=2), first))
            await quiet()
            assert not shard.done() and not step.done()
            before = clock()
            await b.report(Report("running", 1, (Exit(1, 1, 0, 1, code=0),)))
            assert (await shard).leases and (await step).lowest == 2
            assert about(clock(), before)

        simulate(scenario)

    @pytest.mark.parametrize("left", ["a shard", "a shard of no table", "nothing"])
    def test_and_has_left_a_shard_of_a_table_to_nobody_is_no_success(self, left: str) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            ledgers, second = job.leaders[0].ledgers, Caller("run", "b", b.incarnation)
            data = Dataset(
                "clicks", size=8, shard_size=4, shards=2, tracking="ack", alone=left != "a shard of no table"
            )
            ask = Request("exchange", "clicks", 1, 1, 2, sequence=1, wants=1)
            await ledgers.answer(Request("open", "clicks", 1, 1, 2, dataset=data), second)
            (leased,) = (await ledgers.answer(ask, second)).leases
            if left == "nothing":  # it has given back what it had: its script ends before its data
                again = dataclasses.replace(ask, sequence=2, wants=0, release=(leased.shard_index,))
                assert (await ledgers.answer(again, second)).kind == "ok"
            await a.succeed(1)
            await b.report(Report("succeeded", 1, (Exit(1, 1, 0, 1, code=0),)))
            header = await job.header(2)
            assert header.state == ("failed" if left == "a shard" else "succeeded")
            assert ("shard 0 of dataset 'clicks'" in str(header.reason)) == (left == "a shard")

        simulate(scenario)


class TestAFailure:
    def test_opens_a_round_with_everybody_and_is_charged_once(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            began = clock()
            await a.fail(1)
            header = await job.header(2)
            assert clock() == began
            assert (header.cause, header.restart_count, header.max_restarts) == ("failure", 1, 3)
            assert header.incident and header.incident.node == "a" and "ValueError: no" in str(header.incident.reason)
            assert await job.in_round(header) == incarnations([a, b])

        simulate(scenario)

    def test_with_all_its_consequences_is_charged_once(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.fail(1, "RuntimeError: Connection closed by peer")
            await job.header(2)
            await b.fail(1, "ValueError: the cause")
            await c.fail(1, "RuntimeError: Connection reset by peer")
            await quiet()
            said = [line for line in job.said if "was opened because" in line]
            assert said == ["round 2 was opened because rank 0 on node b exited with code 1: ValueError: the cause"]
            await later(30)
            await a.fail(2, "OSError: another")
            header = await job.header(3)
            assert header.tally.failures == 1 and header.restart_count == 2

        simulate(scenario)

    def test_of_ranks_that_lost_one_which_ended_with_0_names_that_one_at_once(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.succeed(1)
            await later(5)
            began = clock()
            await b.fail(1, "RuntimeError: Connection closed by peer", rank=1)
            await c.fail(1, "RuntimeError: Connection reset by peer", rank=2)
            header = await job.header(2)
            assert clock() == began, "nothing is left to be known"
            assert str(header.reason).startswith(
                "rank 0 on node a ended with exit code 0 while other ranks still needed it"
            )
            assert header.incident and (header.incident.node, header.restart_count) == ("a", 1)

        simulate(scenario)

    def test_that_is_told_just_after_its_consequence_is_what_the_round_is_opened_for(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1, "RuntimeError: Connection closed by peer")
            await later(0.1)
            began = clock()
            await b.fail(1, "ValueError: the cause")
            header = await job.header(2)
            assert clock() == began and "the cause" in str(header.reason)

        simulate(scenario)

    def test_that_is_told_before_the_master_knows_that_its_round_was_published_is_not_overlooked(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await job.nodes("ab")
            job.policy = dataclasses.replace(job.policy, max_nodes=2)
            await job.lead(a)
            await job.header(1)
            await b.fail(1)
            assert (await job.header(2)).cause == "failure"

        simulate(scenario, store=LateAnswers())

    def test_that_is_told_while_the_next_round_is_being_published_counts_in_the_verdict(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await job.nodes("abc")
            await job.lead(a)
            await later(30)
            await a.fail(1, "RuntimeError: Connection closed by peer")
            assert "Connection closed" in str((await job.header(2)).reason)
            await b.fail(1, "ValueError: the cause")
            await later(30)
            assert any("round 2 was opened because" in line and "the cause" in line for line in job.said)
            await c.leave(2)
            header = await job.header(3)
            assert "ValueError" in header.tally.signature and header.tally.failures == 1

        simulate(scenario, store=LateAnswers())

    def test_of_the_round_before_that_is_told_soon_after_is_charged_to_what_ended_it(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.report(Report("failed", 1, (), StartFailed("port taken")))
            assert (await job.header(2)).restart_count == 0
            await later(0.5)
            await b.fail(1, "ValueError: its own")
            await later(30)
            await c.die()
            header = await job.header(3)
            assert (header.tally.failures, header.tally.problems) == (1, 0)
            assert "ValueError" in header.tally.signature

        simulate(scenario)

    def test_of_an_old_round_that_is_told_too_late_costs_nothing(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.report(Report("failed", 1, (), StartFailed("port taken")))
            await job.header(2)
            await later(30)
            await b.fail(1, "ValueError: late")
            await later(30)
            await c.die()
            assert (await job.header(3)).tally.failures == 0

        simulate(scenario)

    def test_of_a_worker_that_its_agent_stopped_is_none(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            await a.report(Report("running", 1, (Exit(1, 0, 0, 1, signal=9, stopped=True),)))
            await later(30)
            header = await job.now()
            assert header is not None and header.number == 1

        simulate(scenario)

    def test_of_an_old_round_is_not_taken_for_one_of_the_current(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1)
            await job.header(2)
            await a.report(a.registration.member.report)
            await b.fail(1)
            await later(30)
            header = await job.now()
            assert header is not None and header.number == 2

        simulate(scenario)

    def test_beyond_the_budget_ends_the_job_when_the_evidence_is_complete(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            began = clock()
            await b.fail(1)
            header = await job.header(2)
            assert about(clock() - began, 1)
            assert header.state == "failed" and "--max-restarts=0" in str(header.reason)
            assert header.incident and header.incident.node == "b" and header.incident.exit
            await a.go()
            await b.go()
            await job.masters[0]
            assert await job.left_over() == []

        simulate(scenario, max_restarts=0)

    def test_uses_the_budget_up_one_by_one(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            for number in (1, 2):
                await a.fail(number, f"ValueError: {'x' * number}")
                assert (await job.header(number + 1)).restart_count == number
            await a.fail(3, "ValueError: xxx")
            header = await job.header(4)
            assert header.state == "failed"

        simulate(scenario, max_restarts=2)

    def test_that_repeats_itself_ends_the_job_early(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            await a.fail(1)
            assert (await job.header(2)).state == "open"
            await a.fail(2)
            header = await job.header(3)
            assert header.state == "repeated"

        simulate(scenario, same_failure_limit=2, max_restarts=10)

    def test_of_every_rank_that_no_restart_can_change_ends_the_job_at_once(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1, "ModuleNotFoundError: No module named 'wandb'")
            await later(2)
            await b.fail(1, "ModuleNotFoundError: No module named 'wandb'", rank=1)
            header = await job.header(2)
            assert header.state == "failed" and "every rank failed in the same way" in str(header.reason)

        simulate(scenario, same_failure_limit=3)

    def test_of_one_node_that_no_restart_can_change_there_is_restarted(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            began = clock()
            await a.fail(1, "ModuleNotFoundError: No module named 'wandb'")
            assert (await job.header(2)).state == "open"
            assert about(clock() - began, 3)

        simulate(scenario, same_failure_limit=3)

    def test_root_cause_is_the_error_that_speaks_of_no_lost_peer(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1, "RuntimeError: Connection closed by peer")
            await later(0.5)
            await b.fail(1, "ValueError: the cause")
            header = await job.header(2)
            assert header.incident and header.incident.node == "b"

        simulate(scenario, max_restarts=0)

    def test_admits_a_joining_node_of_the_same_moment(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "ab", standbys="c")
            await a.fail(1)
            assert await job.in_round(await job.header(2)) == incarnations([a, b, c])

        simulate(scenario)

    def test_to_start_workers_is_charged_to_nobody_and_tried_on_the_nodes_new_ports(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            await a.report(Report("failed", 1, (), StartFailed("port 5002 is taken")), (6001, 6002))
            header = await job.header(2)
            assert (header.cause, header.restart_count, header.tally.failures) == ("problem", 0, 0)
            assert header.master_port in (6001, 6002)

        simulate(scenario)

    def test_to_start_workers_again_and_again_ends_the_job(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            for number in range(1, 5):
                await a.report(Report("failed", number, (), StartFailed(f"port taken, try {number}")))
                assert (await job.header(number + 1)).state == "open"
            await a.report(Report("failed", 5, (), StartFailed("port taken, try 5")))
            header = await job.header(6)
            assert header.state == "failed" and "5 times" in str(header.reason)

        simulate(scenario)

    def test_that_is_told_late_does_not_make_a_later_loss_fatal(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.report(Report("failed", 1, (), StartFailed("port taken")))
            await job.header(2)
            await b.fail(1, "RuntimeError: Connection refused")
            await later(30)
            await c.die()
            header = await job.header(3)
            assert header.state == "open"

        simulate(scenario, max_restarts=0)

    def test_is_not_overlooked_when_the_report_tells_only_of_workers_that_were_stopped(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            await a.report(Report("failed", 1, (Exit(1, 3, 3, 4, signal=9, stopped=True),)))
            await later(3600)
            header = await job.now()
            assert header is not None and header.number > 1

        simulate(scenario)

    def test_is_not_overlooked_when_the_report_has_no_room_for_its_exit(self) -> None:
        async def scenario(job: Job) -> None:
            a, _ = await running_job(job)
            await a.report(Report("failed", 1, (Exit(1, 3, 3, 4, code=0),)))
            await later(3600)
            header = await job.now()
            assert header is not None and header.number > 1

        simulate(scenario)


class TestSuspension:
    def test_below_the_minimum_stops_all_and_comes_back_with_the_next_join(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.die()
            header = await job.header(2)
            assert (header.state, header.cause, header.deadline_seconds) == ("waiting", "lost", 600.0)
            await a.report(Report("waiting", 2))
            await later(100)
            c = await job.join("c")
            began = clock()
            header = await job.header(3)
            assert clock() == began
            assert header.state == "open" and header.cause == "start"
            assert await job.in_round(header) == incarnations([a, c])
            assert header.tally.lost == 1 and header.tally.failures == 0

        simulate(scenario)

    def test_ends_at_the_deadline(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.die()
            await job.header(2)
            began = clock()
            header = await job.header(3)
            assert header.state == "timeout"
            assert about(clock() - began, 600)
            await a.go()
            await job.masters[0]
            assert await job.left_over() == []

        simulate(scenario)

    def test_by_a_failure_of_the_survivors_in_the_same_moment_is_charged_to_the_loss(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.die()
            await job.header(2)
            await a.fail(1, "RuntimeError: Connection reset by peer")
            await quiet()
            await job.join("c")
            header = await job.header(3)
            assert (header.tally.failures, header.tally.lost, header.restart_count) == (0, 1, 0)

        simulate(scenario)

    def test_does_not_charge_what_happens_meanwhile(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, c = await running_job(job, "abc")
            await b.die()
            assert (await job.header(2)).state == "waiting"
            await later(30)
            await c.die()
            await later(30)
            await job.nodes("de")
            header = await job.header(3)
            assert header.state == "open" and header.incident is None
            assert (header.tally.lost, header.tally.failures) == (1, 0)

        simulate(scenario, policy=Policy(min_nodes=3, max_nodes=3))

    def test_is_called_off_when_the_survivor_is_told_to_leave(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.die()
            await job.header(2)
            await a.leave(1)
            assert (await job.header(3)).state == "preempted"

        simulate(scenario)


class TestJoiningNodes:
    def test_enter_together_when_the_last_has_settled_and_the_round_has_had_its_interval(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await later(100)
            c = await job.join("c")
            await later(5)
            began = clock()
            d = await job.join("d")
            header = await job.header(2)
            assert about(clock() - began, 10)
            assert await job.in_round(header) == incarnations([a, b, c, d])
            assert header.cause == "joined" and header.incident and header.incident.cause == "joined"
            assert any("restarts the script" in line for line in job.said)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=5))

    def test_soon_after_a_round_began_only_settle(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job)
            opened = clock()
            await later(1)
            await job.join("c")
            await job.header(2)
            assert about(clock() - opened, 1 + 10)

        simulate(scenario)

    def test_soon_after_another_join_wait_for_the_interval(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job)
            await job.join("c")
            await job.header(2)
            opened = clock()
            await job.join("d")
            await job.header(3)
            assert about(clock() - opened, 60)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=4))

    def test_wait_as_standbys_for_ever_where_the_user_said_so(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "ab", standbys="c")
            await later(3600)
            header = await job.now()
            assert header is not None and header.number == 1
            await a.die()
            assert await job.in_round(await job.header(2)) == incarnations([b, c])

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=3, scale_up="never"))

    def test_enter_in_whole_units(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "ab", standbys="c")
            await later(3600)
            header = await job.now()
            assert header is not None and header.number == 1
            d = await job.join("d")
            assert await job.in_round(await job.header(2)) == incarnations([a, b, c, d])

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=4, node_unit=2))

    @pytest.mark.parametrize(
        ("other", "differs"),
        [
            (dataclasses.replace(FINGERPRINT, script="other.py"), "the script is 'train.py' there and 'other.py' here"),
            (dataclasses.replace(FINGERPRINT, version="1"), "elastic-run's version is '0' there and '1' here"),
        ],
    )
    def test_of_another_command_are_refused_for_good_with_what_differs(self, other: Fingerprint, differs: str) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job)
            stranger = await job.join("x", fingerprint=other)
            await quiet()
            word = await membership.read_eviction(job.store, job.keys, stranger.incarnation)
            assert word is not None and word.final
            assert differs in str(word.reason)
            assert await job.store.get(stranger.registration.key) is None
            header = await job.now()
            assert header is not None and header.number == 1

        simulate(scenario)

    @pytest.mark.parametrize("script", ["train.py", "third.py"])
    def test_of_a_corrected_command_are_seen_also_while_the_wrong_one_is_being_refused(self, script: str) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job, "ab")
            wrong = await job.join("x", fingerprint=dataclasses.replace(FINGERPRINT, script="other.py"))
            await later(1)  # the store has applied the eviction, and the master does not know
            assert await job.store.get(wrong.registration.key) is None
            again = await job.join("x", fingerprint=dataclasses.replace(FINGERPRINT, script=script))
            if script == FINGERPRINT.script:
                assert again.incarnation in await job.in_round(await job.header(2))
            else:
                await later(20)
                word = await membership.read_eviction(job.store, job.keys, again.incarnation)
                assert word and "third.py" in str(word.reason)

        simulate(scenario, store=SlowEvictions())

    def test_of_another_command_are_named_on_the_masters_side_with_here_and_there_right(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job)
            await job.join("x", fingerprint=dataclasses.replace(FINGERPRINT, script="other.py"))
            await quiet()
            (line,) = [line for line in job.said if "refuses" in line]
            assert "'train.py' here" in line and "'other.py' there" in line

        simulate(scenario)

    def test_of_another_source_are_refused_with_the_files_that_differ(self) -> None:
        ours, theirs, none = (
            dataclasses.replace(FINGERPRINT, source=source)
            for source in (("train.py:1", "net.py:2"), ("train.py:1", "net.py:3"), ())
        )

        async def scenario(job: Job) -> None:
            await running_job(job)
            given = await job.join("x", fingerprint=none)
            stranger = await job.join("y", fingerprint=theirs)
            await quiet()
            word = await membership.read_eviction(job.store, job.keys, stranger.incarnation)
            assert word is not None and word.final
            words = "the source of net.py is not the same there and here. Give this one its own --rdzv-id"
            assert words in str(word.reason)
            assert await job.store.get(given.registration.key) is not None

        simulate(scenario, fingerprint=ours)

    def test_with_an_address_that_is_none_do_not_cost_the_job_its_master(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            job.unwatchable.add("c")
            c = await job.join("c")
            assert await job.in_round(await job.header(2)) == incarnations([a, b, c])
            assert any("cannot watch node c" in line for line in job.said)
            await b.die()
            assert await job.in_round(await job.header(3)) == incarnations([a, c])
            await later(30)
            assert not job.masters[0].done()

        simulate(scenario)

    def test_that_speak_another_language_are_ignored(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job)
            await job.store.txn([], [Put(job.keys.node("x"), b"?")])
            await quiet()
            assert any("not a member" in line for line in job.said)
            assert not job.masters[0].done()

        simulate(scenario)


class TestTheEnd:
    def test_of_a_success_leaves_nothing_but_the_tombstone_and_that_for_a_minute(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.succeed(1)
            await b.succeed(1)
            header = await job.header(2)
            assert header.state == "succeeded" and header.tally.failures == 0
            await quiet()
            assert not job.masters[0].done(), "the nodes have not read it yet"
            await a.go()
            await b.go()
            await job.masters[0]
            assert await job.left_over() == ["outcome"]
            with pytest.raises(Refused, match="just succeeded"):
                await membership.refuse_if_over(job.store, job.keys)
            await later(61)
            assert await job.left_over() == []
            await membership.refuse_if_over(job.store, job.keys)

        simulate(scenario)

    def test_counts_the_success_of_a_node_that_went_before_the_others_were_done(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.succeed(1)
            await b.go()
            await later(30)
            await a.succeed(1)
            assert (await job.header(2)).state == "succeeded"

        simulate(scenario)

    def test_does_not_wait_for_ever_for_a_node_that_never_reads_it(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.succeed(1)
            await b.succeed(1)
            await job.header(2)
            began = clock()
            await job.masters[0]
            assert about(clock() - began, 30)

        simulate(scenario)

    def test_of_a_success_refuses_late_nodes_from_the_verdict_on(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.succeed(1)
            await b.succeed(1)
            await job.header(2)
            with pytest.raises(Refused):
                await membership.refuse_if_over(job.store, job.keys)

        simulate(scenario)

    def test_of_a_success_is_the_own_end_of_a_node_that_was_there_before_and_heard_of_no_round(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.succeed(1)
            await b.succeed(1)
            end = await job.header(2)
            assert await membership.refuse_if_over(job.store, job.keys, "") == end
            assert await membership.refuse_if_over(job.store, job.keys, end.run) == end
            assert await membership.refuse_if_over(job.store, job.keys, "the run before") == end

        simulate(scenario)

    def test_of_a_success_refuses_also_a_node_that_had_looked_just_before_the_verdict(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await membership.refuse_if_over(job.store, job.keys)
            await a.succeed(1)
            await b.succeed(1)
            await job.header(2)
            with pytest.raises(Refused, match="just succeeded"):
                await job.join("c")
            assert await job.store.get(job.keys.node("c")) is None

        simulate(scenario)

    def test_does_not_wait_for_nodes_that_came_for_the_next_run(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1)
            assert (await job.header(2)).state == "failed"
            await job.join("c")
            began = clock()
            await a.go()
            await b.go()
            await job.masters[0]
            assert clock() == began

        simulate(scenario, max_restarts=0)

    def test_is_followed_by_a_run_that_the_nodes_that_came_meanwhile_take_part_in(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1)
            old = await job.header(2)
            assert old.final
            nodes = await job.nodes("cd")
            await a.go()
            await b.go()
            await job.masters[0]
            await job.lead(nodes[0])
            await later(60)
            header = await job.now()
            assert header is not None and header.state == "open"
            assignment = await membership.read_assignment(job.store, job.keys, header, nodes[0].registration.member)
            # The agents have seen the header that was final when they registered; they never go back in numbers.
            known = KnownRound(header, stale=old.run, assignment=assignment)
            state = NodeState(key=NodeKey(nodes[0].registration), known=known)
            assert isinstance(agent_plan.act(state, 0.0)[0], actions.Start)

        simulate(scenario, max_restarts=0)


class TestAStoreThatWasAway:
    """Its leases have ended, and that says nothing of their holders."""

    def test_costs_nobody_its_rank_who_registers_again(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, c = await running_job(job, "abc")
            before = await job.now()
            job.store.away = clock()
            await b.fall_silent()
            await c.fall_silent()
            await later(2)
            await b.come_back()
            await c.come_back()
            await later(60)
            assert await job.now() == before

        simulate(scenario)

    def test_does_not_let_a_node_come_back_against_a_proof_of_its_death(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            job.store.away = clock()
            await b.fall_silent()
            job.death_of(b.incarnation).set_result(GONE)  # which a proxy may do
            await quiet()
            lease = await job.store.grant(LONG)
            found = await membership.read_header(job.store, job.keys)
            assert found is not None
            assert await membership.resume(job.store, job.keys, b.registration, lease, found[1]) == "out"
            assert await membership.read_eviction(job.store, job.keys, b.incarnation), "it is told, and comes anew"
            header = await job.header(2)
            assert await job.in_round(header) == incarnations([a, c])

        simulate(scenario)

    def test_costs_a_node_its_rank_that_does_not_answer(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            job.store.away = began = clock()
            await b.fall_silent()
            header = await job.header(2)
            assert clock() - began == SILENT_SECONDS
            assert await job.in_round(header) == incarnations([a, c])
            assert "its key is gone from the store, and it does not answer" in str(header.reason)

        simulate(scenario)

    def test_waits_longer_for_a_node_that_answers(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, _ = await running_job(job, "abc")
            before = await job.now()
            job.store.away = began = clock()
            job.answering.add(b.incarnation)
            await b.fall_silent()
            await later(RETURN_SECONDS - 1)
            assert await job.now() == before
            header = await job.header(2)
            assert clock() - began == RETURN_SECONDS
            assert "although it answers" in str(header.reason)

        simulate(scenario)

    def test_does_not_keep_the_dead_in_their_rank(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            job.store.away = began = clock()
            job.answering.add(b.incarnation)
            await b.fall_silent()
            await quiet()
            await b.die()
            header = await job.header(2)
            assert clock() - began < 0.01
            assert await job.in_round(header) == incarnations([a, c])

        simulate(scenario)

    def test_is_not_the_reason_where_it_answered_for_longer_than_a_lease(self) -> None:
        async def scenario(job: Job) -> None:
            await job.store.grant(LONG)
            job.store.away = clock()
            _, b, _ = await running_job(job, "abc")
            await later(30)
            began = clock()
            await b.fall_silent()
            await job.header(2)
            assert clock() == began

        simulate(scenario)

    def test_ends_the_leadership_of_a_master_whose_own_lease_has_ended(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, _ = await running_job(job, "abc")
            job.store.away = clock()
            job.answering |= {a.incarnation, b.incarnation}
            await b.fall_silent()
            await a.fall_silent()
            await quiet()
            await later(0.1)
            assert job.masters[0].done() and isinstance(job.masters[0].exception(), Deposed)

        simulate(scenario)

    def test_costs_nobody_a_rank_under_the_next_master(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            before = await job.now()
            job.store.away = clock()
            for node in (a, b, c):
                await node.fall_silent()
            await c.come_back()
            await job.lead(c)
            await later(2)
            await b.come_back()
            await a.come_back()
            await later(60)
            assert await job.now() == before
            assert any("continues with round 1" in line for line in job.said)

        simulate(scenario)

    def test_does_not_let_a_node_that_has_just_come_begin_the_job_afresh(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            before = await job.now()
            job.store.away = clock()
            for node in (a, b, c):
                await node.fall_silent()
            d = await job.join("d")
            await job.lead(d)
            await later(2)
            for node in (a, b, c):
                await node.come_back()
            await later(60)
            assert await job.now() == before

        simulate(scenario)

    def test_costs_nobody_a_rank_under_a_node_that_was_started_before_and_could_not_register_until_now(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            before = await job.now()
            coming: asyncio.Future[membership.Registration] = asyncio.get_running_loop().create_future()

            async def registered() -> Candidacy:
                return Candidacy.of(await asyncio.shield(coming))

            candidate = Candidate(
                job.store,
                job.keys,
                Terms(job.policy, 3, 0, FINGERPRINT),
                job.said.append,
                Waits(job.said.append, clock),
            )
            running = asyncio.create_task(candidate.run(registered, str))
            await later(30)  # in which the store is away: only who renews a lease can know
            for node in (a, b, c):
                await node.fall_silent()
            d = await job.join("d")
            coming.set_result(d.registration)
            await later(2)
            for node in (a, b, c):
                await node.come_back()
            await later(60)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert any("continues with round 1" in line for line in job.said)
            assert await job.now() == before

        simulate(scenario)

    def test_lets_nobody_come_back_into_a_run_that_was_given_up(self) -> None:
        async def scenario(job: Job) -> None:
            nodes = await running_job(job, "abc")
            job.store.away = clock()
            for node in nodes:
                await node.fall_silent()
            d = await job.join("d")
            await job.lead(d)
            await later(20)
            found = await membership.read_header(job.store, job.keys)
            assert found is not None and found[0].number == 1
            lease = await job.store.grant(LONG)
            resumed = await membership.resume(job.store, job.keys, nodes[0].registration, lease, found[1])
            assert resumed == "out"

        simulate(scenario)


class TestAResumedRegistration:
    """`membership.resume`: the header and the word of an eviction are what it is fenced by."""

    async def in_a_round(self, job: Job) -> tuple[Node, Node, int]:
        """Two nodes in round 1, and the revision of its header."""
        a, b = await running_job(job)
        found = await membership.read_header(job.store, job.keys)
        assert found is not None
        return a, b, found[1]

    def test_is_the_same_incarnation_under_another_lease(self) -> None:
        async def scenario(job: Job) -> None:
            a, *_ = await running_job(job, "abc")
            job.store.away = clock()
            before = a.registration
            await a.fall_silent()
            await a.come_back()
            assert a.registration.member == before.member
            assert a.registration.revision > before.revision and a.registration.lease != before.lease
            await a.run(1)  # and it reports under it

        simulate(scenario)

    def test_is_refused_to_who_was_evicted(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, _ = await running_job(job, "abc")
            await b.die()
            await job.header(2)
            found = await membership.read_header(job.store, job.keys)
            assert found is not None
            lease = await job.store.grant(LONG)
            assert await membership.resume(job.store, job.keys, b.registration, lease, found[1]) == "out"

        simulate(scenario)

    def test_is_refused_where_another_round_was_opened(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, _ = await running_job(job, "abc")
            old = await membership.read_header(job.store, job.keys)
            assert old is not None
            await b.fall_silent()
            await job.header(2)
            lease = await job.store.grant(LONG)
            assert await membership.resume(job.store, job.keys, b.registration, lease, old[1]) == "moved"

        simulate(scenario)

    def test_is_refused_where_another_node_has_its_name(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, header = await self.in_a_round(job)
            job.store.away = clock()
            await b.fall_silent()
            other = await job.join("b")
            assert other.registration.member.node == "b"
            lease = await job.store.grant(LONG)
            assert await membership.resume(job.store, job.keys, b.registration, lease, header) == "out"

        simulate(scenario)

    def test_is_refused_where_the_node_has_heard_of_no_round(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await job.nodes("ab")
            await b.fall_silent()  # before it has heard of the round that it is in
            await job.lead(a)
            await job.header(1)
            await a.succeed(1)
            assert (await job.header(2)).state == "succeeded"
            await a.go()
            await job.masters[0]
            assert await job.now() is None, "the job's keys are gone, as before it began"
            lease = await job.store.grant(LONG)
            assert await membership.resume(job.store, job.keys, b.registration, lease, 0) == "moved"

        simulate(scenario, policy=Policy(min_nodes=1, max_nodes=3))

    def test_is_known_where_the_answer_was_lost(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, header = await self.in_a_round(job)
            lease = await job.store.grant(LONG)
            job.store.away = clock()
            await b.fall_silent()
            first = await membership.resume(job.store, job.keys, b.registration, lease, header)
            assert isinstance(first, membership.Registration)
            assert await membership.resume(job.store, job.keys, b.registration, lease, header) == first

        simulate(scenario)


class TestTakeover:
    def test_while_gathering_goes_on_gathering(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await job.nodes("ab")
            await job.lead(a)
            await quiet()
            await job.kill_master(b)
            c = await job.join("c")
            await job.lead(b)
            header = await job.header(1)
            assert await job.in_round(header) == incarnations([b, c])

        simulate(scenario)

    def test_while_running_does_not_touch_the_round(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, _c = await running_job(job, "abc")
            before = await job.now()
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.lead(b)
            await later(3600)
            assert await job.now() == before
            assert any("continues with round 1" in line for line in job.said)

        simulate(scenario)

    def test_after_the_masters_node_died_opens_a_round_of_the_others_and_keeps_the_account(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            for number in (1, 2):
                await c.fail(number, f"ValueError: {'x' * number}")
                await job.header(number + 1)
                for node in (a, b, c):
                    await node.run(number + 1)
                await later(30)
            await job.kill_master(b)
            await job.lead(b)
            header = await job.header(4)
            assert await job.in_round(header) == incarnations([b, c])
            assert (header.cause, header.restart_count) == ("lost", 2)
            assert header.tally.failures == 2
            assert header.incident and header.incident.node == "a"
            status = job.leaders[-1].status
            assert (status.round, status.tally.failures, status.tally.lost) == (4, 2, 1)
            assert [(node.node, node.state) for node in status.nodes] == [("b", "running"), ("c", "running")]
            assert 55 < status.goodput.trained <= status.goodput.elapsed, "the master before this one has counted"

        simulate(scenario)

    def test_keeps_the_runs_name(self) -> None:
        async def scenario(job: Job) -> None:
            _, b, _ = await running_job(job, "abc")
            before = await job.now()
            await job.kill_master(b)
            await job.lead(b)
            assert before is not None and (await job.header(2)).run == before.run

        simulate(scenario)

    def test_by_a_node_with_another_budget_keeps_the_jobs(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.lead(b, max_restarts=0)
            await c.fail(1)
            header = await job.header(2)
            assert (header.state, header.restart_count, header.max_restarts) == ("open", 1, 3)
            assert await job.in_round(header) == incarnations([a, b, c])

        simulate(scenario, max_restarts=3)

    def test_reads_a_failure_that_the_dead_master_did_not_act_on(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            job.masters[0].cancel()
            await c.fail(1)
            await b.report(Report("running", 1))
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.lead(b)
            header = await job.header(2)
            assert (header.cause, header.restart_count) == ("failure", 1)
            assert await job.in_round(header) == incarnations([a, b, c])

        simulate(scenario)

    def test_of_a_suspended_job_goes_on_waiting(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            await a.die()
            await b.die()
            await quiet()
            header = await job.now()
            assert header is not None and header.state == "waiting"
            number = header.number
            job.masters[0].cancel()
            await asyncio.gather(job.masters[0], return_exceptions=True)
            await job.store.revoke(a.registration.lease)
            await job.lead(c)
            await later(100)
            header = await job.now()
            assert header is not None and header.number == number
            d = await job.join("d")
            header = await job.header(number + 1)
            assert await job.in_round(header) == incarnations([c, d])
            assert header.tally.lost >= 1

        simulate(scenario)

    def test_of_a_suspended_job_still_has_a_deadline(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b = await running_job(job)
            job.masters[0].cancel()
            assert await job.depose(b)
            await job.lead(b)
            assert (await job.header(2)).state == "waiting"
            assert (await job.header(3)).state == "timeout"

        simulate(scenario)

    def test_removes_assignments_that_no_header_names(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, _c = await running_job(job, "abc")
            abandoned = job.keys.assignment("1.99", "a")
            await job.store.txn([], [Put(abandoned, encode(Assignment(99, "a", "x", 0, 1, 0, 1, 1, 0, 1)))])
            await job.kill_master(b)
            await job.lead(b)
            await job.header(2)
            assert await job.store.get(abandoned) is None

        simulate(scenario)

    def test_when_all_were_silent_goes_on_with_the_run_of_the_first_who_is_back(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.fail(1)
            before = await job.header(2)
            job.masters[0].cancel()
            await a.fall_silent()
            await b.fall_silent()
            await quiet()
            back = await job.join("a", run=before.run)
            await job.lead(back)
            other = await job.join("b", run=before.run)
            header = await job.header(3)
            assert await job.in_round(header) == incarnations([back, other])
            assert (header.run, header.tally.failures, header.restart_count) == (before.run, 1, 1)

        simulate(scenario)

    def test_after_the_remains_of_another_run_begins_afresh_with_the_next_number(self) -> None:
        async def scenario(job: Job) -> None:
            old = Header(7, "old", "open", "start", AllJoined(1), FINGERPRINT, prefix="1.7", nodes=1)
            old = dataclasses.replace(old, tally=dataclasses.replace(old.tally, failures=3))
            dead = Assignment(7, "a", "dead", 0, 1, 0, 1, 1, 0, 1)
            await job.store.txn([], [Put(job.keys.round, encode(old))])
            await job.store.txn([], [Put(job.keys.assignment("1.7", "a"), encode(dead))])
            nodes = await job.nodes("abc")
            await job.lead(nodes[0])
            header = await job.header(8)
            assert header.run != "old" and header.cause == "start"
            assert (header.tally.failures, header.restart_count) == (0, 0)
            assert await job.in_round(header) == incarnations(nodes)

        simulate(scenario)

    @pytest.mark.parametrize("state", ["failed", "succeeded", "preempted", "waiting"])
    def test_after_the_end_of_another_run_begins_afresh(self, state: str) -> None:
        async def scenario(job: Job) -> None:
            old = Header(7, "old", "failed", "start", AllJoined(1), dataclasses.replace(FINGERPRINT, script="old.py"))
            old = dataclasses.replace(old, state=state)
            await job.store.txn([], [Put(job.keys.round, encode(old))])
            nodes = await job.nodes("abc")
            await job.lead(nodes[0])
            assert await job.in_round(await job.header(8)) == incarnations(nodes)

        simulate(scenario)

    def test_after_a_run_that_was_cut_off_near_its_end_begins_afresh_with_another_command(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await a.succeed(1)
            await quiet()
            job.masters[0].cancel()
            await a.fall_silent()
            await b.fall_silent()
            await quiet()
            other = dataclasses.replace(FINGERPRINT, arguments=("--lr", "0.2"))
            nodes = [await job.join(name, fingerprint=other) for name in "abc"]
            await job.lead(nodes[0], fingerprint=other)
            header = await job.header(2)
            assert await job.in_round(header) == incarnations(nodes)
            assert header.cause == "start" and header.tally == Tally()
            assert not [key for key in await job.left_over() if key.startswith("successes/")]

        simulate(scenario)

    def test_of_the_farewell_by_a_node_of_the_next_run_is_followed_by_that_run(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.fail(1)
            old = await job.header(2)
            assert old.state == "failed"
            c = await job.join("c")
            await job.kill_master(a)

            async def registered() -> Candidacy:
                member = dataclasses.replace(c.registration.member, agent_address="")
                return Candidacy.of(dataclasses.replace(c.registration, member=member))

            policy = Policy(min_nodes=1, max_nodes=3)
            candidate = Candidate(
                job.store, job.keys, Terms(policy, 0, 0, FINGERPRINT), job.said.append, Waits(job.said.append, clock)
            )
            running = asyncio.create_task(candidate.run(registered, lambda: old.run))
            await later(1)
            await b.go()
            await later(100)
            header = await job.now()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert header is not None and header.state == "open"

        simulate(scenario, max_restarts=0)

    def test_refuses_who_does_not_fit_the_job_that_runs_even_itself(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            held = await job.store.get(job.keys.leader)
            assert held is not None
            stranger = await job.join("x", fingerprint=dataclasses.replace(FINGERPRINT, script="other.py"))
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.lead(stranger, fingerprint=dataclasses.replace(FINGERPRINT, script="other.py"))
            await quiet()
            assert await job.store.get(stranger.registration.key) is None
            assert await job.store.get(a.registration.key) is not None
            assert await job.store.get(b.registration.key) is not None

        simulate(scenario)

    def test_during_the_farewell_does_not_start_the_job_again(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, "abc")
            for node in (a, b, c):
                await node.succeed(1)
            assert (await job.header(2)).state == "succeeded"
            await job.kill_master(b)
            master = await job.lead(b)
            await later(10)
            header = await job.now()
            assert header is None or header.number == 2
            await b.go()
            await c.go()
            await master
            assert await job.left_over() == ["outcome"]

        simulate(scenario)

    def test_remembers_the_success_of_a_node_that_has_gone(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, c = await running_job(job, "abc")
            await c.succeed(1)
            await c.go()
            await quiet()
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.lead(b)
            await later(10)
            header = await job.now()
            assert header is not None and header.number == 1

        simulate(scenario)


class TestMastersThatChange:
    """What began under one master ends in its time under the next. Each is the master for four seconds."""

    async def change(self, job: Job, node: Node, times: int = 1) -> None:
        for _ in range(times):
            await later(4)
            job.masters[-1].cancel()
            await asyncio.gather(job.masters[-1], return_exceptions=True)
            await job.store.txn([], [Delete(job.keys.leader)])
            await job.lead(node)
            await quiet()

    def test_keep_the_last_call_of_the_first_round(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await job.nodes("ab")
            await job.lead(a)
            await self.change(job, b, 2)
            await job.header(1)
            assert about(clock(), 10)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=4, last_call=10))

    def test_admit_a_joining_node_when_it_has_settled(self) -> None:
        async def scenario(job: Job) -> None:
            nodes = await running_job(job)
            await later(100)
            await job.join("c")
            await self.change(job, nodes[1], 2)
            assert (await job.header(2)).cause == "joined"
            assert about(clock(), 110)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=3, last_call=0))

    def test_keep_the_pause_between_two_joins(self) -> None:
        async def scenario(job: Job) -> None:
            nodes = await running_job(job)
            nodes.append(await job.join("c"))
            await job.header(2)
            grown = clock()
            for node in nodes:
                await node.run(2)
            await job.join("d")
            await self.change(job, nodes[1], 2)
            await job.header(3)
            assert about(clock() - grown, 60)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=4, last_call=0))

    def test_end_a_suspended_job_in_its_time(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await b.die()
            assert (await job.header(2)).state == "waiting"
            suspended = clock()
            await self.change(job, a, 3)
            assert (await job.header(3)).state == "timeout"
            assert about(clock() - suspended, 20)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=3, last_call=0, recovery_timeout=20))

    def test_wait_no_longer_together_for_a_run_after_one_that_all_its_nodes_have_left(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, c = await running_job(job, standbys="c")
            await later(100)
            await job.kill_master(a)
            await b.fall_silent()
            left = clock()
            await job.lead(c)
            await self.change(job, c, 3)
            assert (await job.header(2)).state == "timeout"
            assert about(clock() - left, 20)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=2, join_timeout=20))

    def test_wait_no_longer_together_for_nodes_that_do_not_take_their_leave(self) -> None:
        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            for node in (a, b):
                await node.succeed(1)
            await job.header(2)
            ended = clock()
            await self.change(job, b, 3)
            await job.masters[-1]
            assert about(clock() - ended, 30)
            assert "round" not in await job.left_over()

        simulate(scenario)

    def test_count_a_runs_age_from_its_header(self) -> None:
        """Starts that came to nothing count in a row only soon after their round was opened."""

        async def scenario(job: Job) -> None:
            a, b = await running_job(job)
            await later(100)
            await self.change(job, b)
            await a.report(Report("failed", 1, (), StartFailed("a port is taken")))
            header = await job.header(2)
            assert header.incident is not None and about(header.incident.ran, 104)

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=3, last_call=0))


class TestALongLife:
    def test_leaves_nothing_behind_of_nodes_that_were_lost(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job, "ab")
            kept: list[tuple[int, ...]] = []
            for _ in range(3):
                for _ in range(WORDS):
                    standby = await job.join("standby")
                    await quiet()
                    await standby.die()
                    await quiet()
                (master,) = job.leaders
                sizes = [len(value) for value in vars(master).values() if isinstance(value, Sized)]
                kept.append((*sizes, len(await job.left_over())))
            assert kept[0] == kept[1] == kept[2]

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=2))

    def test_leaves_nothing_behind_of_nodes_that_went_in_order(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job, "ab")
            kept: list[tuple[int, ...]] = []
            for _ in range(3):
                for _ in range(20):
                    await (await job.join("standby")).go()
                    await quiet()
                (master,) = job.leaders
                kept.append(tuple(len(value) for value in vars(master).values() if isinstance(value, Sized)))
            assert kept[0] == kept[1] == kept[2]

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=2))

    def test_keeps_the_words_of_the_last_evictions(self) -> None:
        async def scenario(job: Job) -> None:
            await running_job(job, "ab")
            for _ in range(WORDS + 20):
                standby = await job.join("standby")
                await quiet()
                await standby.die()
                await quiet()
                assert await membership.read_eviction(job.store, job.keys, standby.incarnation)
            assert len((await job.store.list(job.keys.evictions)).items) == WORDS

        simulate(scenario, policy=Policy(min_nodes=2, max_nodes=2))


class TestNewsOfManyNodes:
    def test_at_once_leave_their_turn_to_the_loops_other_tasks(self) -> None:
        """One of them renews the lease under which the master leads."""

        async def scenario(job: Job) -> None:
            nodes = [await job.join(f"n{number}") for number in range(10 * master_module.A_TURN)]
            await job.lead(nodes[0])
            await job.header(1)
            for node in nodes:
                await node.run(1)
            (master,) = job.leaders
            seen: list[int] = []

            async def other() -> None:
                while len(seen) < 12:
                    members = vars(vars(master)["_controller"])["_membership"].seen
                    seen.append(sum(each.member.report.state == "running" for each in members))
                    await asyncio.sleep(0)

            await other()
            steps = [after - before for before, after in itertools.pairwise(seen)]
            assert sum(steps) == len(nodes) and max(steps) <= master_module.A_TURN, seen

        names = 10 * master_module.A_TURN
        simulate(scenario, policy=Policy(min_nodes=names, max_nodes=names))


class TestADeposedMaster:
    def test_whose_lease_has_ended_says_so_and_blames_nobody(self) -> None:
        async def scenario(job: Job) -> None:
            a, _, _ = await running_job(job, "abc")
            await a.fall_silent()  # as where its process was stopped for longer than its lease
            with pytest.raises(Deposed, match="its lease expired"):
                await job.masters[0]

        simulate(scenario)

    def test_changes_nothing_and_says_so(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, c = await running_job(job, "abc")
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.elect(b)
            before = [item for item in (await job.store.list(job.keys.root)).items if "/nodes/" not in item.key]
            await c.fail(1)
            with pytest.raises(Deposed):
                await job.masters[0]
            after = [item for item in (await job.store.list(job.keys.root)).items if "/nodes/" not in item.key]
            assert before == after

        simulate(scenario)

    def test_evicts_nobody(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, c = await running_job(job, "abc")
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            await job.elect(b)
            await c.die()
            await later(30)
            assert await job.store.get(c.registration.key) is not None
            assert await membership.read_eviction(job.store, job.keys, c.incarnation) is None
            await c.run(1)
            with pytest.raises(Deposed):
                await job.masters[0]

        simulate(scenario)

    def test_and_its_successor_never_both_open_a_round(self) -> None:
        async def scenario(job: Job) -> None:
            _a, b, c = await running_job(job, "abc")
            held = await job.store.get(job.keys.leader)
            assert held is not None
            await election.resign(job.store, election.Leadership(held.key, held.create_revision))
            leadership = await job.elect(b)
            job.master(b, leadership)
            await c.die()
            header = await job.header(2)
            assert header.prefix.startswith(f"{leadership.revision}.")
            await later(30)
            assert await job.now() == header

        simulate(scenario)

    def test_at_its_takeover_leaves_no_task_behind(self) -> None:
        async def scenario(job: Job) -> None:
            a, b, _c = await job.nodes("abc")
            abandoned = job.keys.assignment("1.99", "a")
            await job.store.txn([], [Put(abandoned, encode(Assignment(99, "a", "x", 0, 1, 0, 1, 1, 0, 1)))])
            leadership = await job.elect(a)
            await election.resign(job.store, leadership)
            await job.elect(b)
            with pytest.raises(Deposed):
                await job.master(a, leadership)
            await quiet()
            assert job.watched == set()

        simulate(scenario)


def test_a_cancelled_master_stops_watching_everybody() -> None:
    async def scenario(job: Job) -> None:
        await running_job(job, "abc")
        assert len(job.watched) == 3
        job.masters[0].cancel()
        await asyncio.gather(job.masters[0], return_exceptions=True)
        await quiet()
        assert job.watched == set()

    simulate(scenario)


def test_a_master_watches_only_who_is_there() -> None:
    async def scenario(job: Job) -> None:
        a, b, c = await running_job(job, "abc")
        await c.fall_silent()
        await job.header(2)
        await quiet()
        assert job.watched == {a.incarnation, b.incarnation}

    simulate(scenario)


def test_equal_starts_do_not_differ() -> None:
    assert describe_difference(FINGERPRINT, FINGERPRINT) == ""


@pytest.mark.parametrize("name", ["script", "nnodes", "nproc_per_node", "version", "framework"])
def test_the_difference_of_two_starts_names_the_field_and_both_values(name: str) -> None:
    words = describe_difference(FINGERPRINT, dataclasses.replace(FINGERPRINT, **{name: "other"}))
    assert repr(getattr(FINGERPRINT, name)) in words and "'other'" in words


def test_arguments_that_are_cut_elsewhere_differ() -> None:
    one, other = (dataclasses.replace(FINGERPRINT, arguments=args) for args in (("a b",), ("a", "b")))
    assert "2 there and 1 here" in describe_difference(one, other)


def test_which_arguments_differ_is_told_by_their_numbers() -> None:
    one, other = (dataclasses.replace(FINGERPRINT, arguments=args) for args in (("a", "b", "c"), ("a", "x", "y")))
    assert "number 2, 3 of 3" in describe_difference(one, other)


@pytest.mark.parametrize("name", ["nnodes", "version", "framework", "roles", "identity"])
def test_where_both_users_gave_the_id_only_script_arguments_and_workers_may_differ(name: str) -> None:
    one = dataclasses.replace(FINGERPRINT, named=True)
    own = dataclasses.replace(one, script="/nvme0/train.py", arguments=("--data=/nvme0",), nproc_per_node="2")
    assert describe_difference(one, own) == ""
    assert "need the same --rdzv-id" in describe_difference(one, dataclasses.replace(own, named=False))
    words = describe_difference(one, dataclasses.replace(own, **{name: "other"}))
    assert "'other'" in words and "script" not in words
