"""A whole agent on a store in memory that is silent, slow or says no at the very moment that a test picks.

The machine is pretended: its workers end when the test says so. The clock jumps, and a wait without end is an error.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent.agent import Agent, Result
from elastic_run.elastic_agent.channel import Respond
from elastic_run.elastic_agent.facts import Setup
from elastic_run.elastic_agent.plan import FAILED, SUCCEEDED
from elastic_run.elastic_agent.rings import Rings
from elastic_run.elastic_agent.seed import Recipe
from elastic_run.elastic_agent.workers import StartFailed, WorkerSpec
from elastic_run.master.host import Terms
from elastic_run.rendezvous import membership
from elastic_run.rendezvous.errors import LeaseLost, MaybeApplied, StoreError, StoreRefused, StoreUnavailable
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member
from elastic_run.rendezvous.memory import MemoryStore
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.store import Compare, Delete, Event, KeyValue, Operation, Put, TxnResult
from elastic_run.rendezvous.wire import decode

from ..simulation.test_master_on_memory_store import VirtualLoop

KEYS = Keys("job")
NODE = KEYS.node("a")
FINGERPRINT = Fingerprint("train.py", (), "1", "1", "0")
SILENT = StoreUnavailable("no answer within 5 s")

ENOUGH = 60.0
"""Seconds, on the clock that jumps, after which what has not happened never will."""


class PickedStore(MemoryStore):
    """Raises the error once, at the first call that `at` picks.

    Args:
        at: is given what is done (`get`, `put`), the key, and the value that is there or is to be written (None: there
            is none).
        error: what is raised; nothing is written then, unless it is MaybeApplied.
        then_silent: the next reading of the node's key fails as well.

    Attributes:
        happened: the error was raised.
        births: the incarnations that registered, in order.
    """

    def __init__(
        self,
        at: Callable[[str, str, bytes | None], bool] = lambda _verb, _key, _value: False,
        error: StoreError = SILENT,
        *,
        then_silent: bool = False,
    ) -> None:
        super().__init__()
        self._at = at
        self._error = error
        self._then_silent = then_silent
        self.happened = False
        self.births: list[str] = []

    async def get(self, key: str) -> KeyValue | None:
        found = await super().get(key)
        if self.happened and self._then_silent and key == NODE:
            self._then_silent = False
            raise SILENT
        if self._picks("get", key, found.value if found else None):
            raise self._error
        return found

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        picked = any(isinstance(each, Put) and self._picks("put", each.key, each.value) for each in operations)
        if picked and not isinstance(self._error, MaybeApplied):
            raise self._error
        result = await super().txn(compares, operations, idempotent=idempotent)
        if result.succeeded and Compare(NODE, 0) in compares:
            self.births += [decode(Member, each.value).incarnation for each in operations if isinstance(each, Put)]
        if picked:
            raise self._error
        return result

    def _picks(self, verb: str, key: str, value: bytes | None) -> bool:
        if self.happened or not self._at(verb, key, value):
            return False
        self.happened = True
        return True


class PretendedWorkers:
    """One worker at a time.

    Attributes:
        started: the rounds whose worker was started.
        failing: how many starts fail from now on.
    """

    def __init__(self) -> None:
        self.started: list[int] = []
        self.failing = 0
        self.exits: tuple[Exit, ...] = ()
        self.alive = 0
        self.undead: tuple[int, ...] = ()
        self._news = asyncio.Event()

    def end(self, code: int = 0, *, stopped: bool = False) -> None:
        """The worker ends."""
        self.exits, self.alive = (Exit(self.started[-1], 0, 0, 1, code, stopped=stopped),), 0
        self._news.set()

    @property
    def pids(self) -> dict[int, int]:
        return {0: 1} if self.alive else {}

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        raise NotImplementedError("this worker does not keep its process")

    async def fill(self, specs: Sequence[WorkerSpec]) -> None:
        raise NotImplementedError("this worker does not keep its process")

    async def changed(self) -> None:
        await self._news.wait()
        self._news.clear()

    def warm(self, recipe: Recipe) -> None:
        raise NotImplementedError("these workers are no processes")

    async def ready(self) -> None:
        return

    async def start(self, specs: Sequence[WorkerSpec]) -> None:
        self.exits = ()
        if self.failing:
            self.failing -= 1
            raise StartFailed("cannot start the worker: no more processes")
        self.started.append(specs[0].round)
        self.alive = 1

    async def stop(self, *, first: int, grace: float) -> tuple[Exit, ...]:
        if self.alive:
            self.end(1, stopped=True)
        return self.exits

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    async def close(self, *, spare_detached: bool = False) -> None:
        return


class PretendedGuard:
    """Has nobody to guard."""

    def start(self) -> None:
        return

    def beat(self) -> None:
        return

    def pause(self) -> None:
        return

    async def close(self, *, spare_detached: bool = False) -> None:
        return


class PretendedPorts:
    """Free whenever they are wanted."""

    offered: tuple[int, ...] = (5001, 5002)

    def renew(self) -> None:
        return

    def release(self, port: int) -> bool:
        return True

    def hold(self) -> None:
        return

    def close(self) -> None:
        return


class PretendedDesk:
    """Nobody asks."""

    address = ""

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return


class PretendedRings(Rings):
    """Nobody keeps its process."""

    def start(self, desk: str) -> None:
        pass


class PretendedMachine:
    """Where the agent runs; what it says goes into `said`."""

    def __init__(self) -> None:
        self.set = PretendedWorkers()
        self.said: list[str] = []

    def workers(self, tag: str, silence: float | None) -> tuple[PretendedWorkers, PretendedGuard]:
        return self.set, PretendedGuard()

    def ports(self) -> PretendedPorts:
        return PretendedPorts()

    def listener(self, bind: str) -> socket.socket:
        raise AssertionError("nobody else is in the job")

    def desk(self, respond: Respond) -> PretendedDesk:
        return PretendedDesk()

    def rings(self, changed: Callable[[], None]) -> "PretendedRings":
        return PretendedRings(changed)

    def say(self, line: str) -> None:
        self.said.append(line)

    def error_file(self, round: int, local_rank: int) -> Path:
        return Path("/none")


@dataclass
class Job:
    """One agent that runs, named a, alone in its job."""

    store: PickedStore
    machine: PretendedMachine
    agent: "asyncio.Task[Result]"

    async def runs(self, round: int) -> None:
        """Waits until the worker of that round runs."""
        workers = self.machine.set
        while not (workers.started and workers.started[-1] == round and workers.alive):
            await later(0.01)
            if self.agent.done():
                pytest.fail(f"the agent has ended: {self.agent.result()}")

    async def nodes(self) -> list[str]:
        return [item.key.removeprefix(KEYS.nodes) for item in (await self.store.list(KEYS.nodes)).items]


async def later(seconds: float) -> None:
    """`seconds` pass, on the clock that jumps."""
    await asyncio.sleep(seconds)


def live(store: PickedStore, scenario: Callable[[Job], Coroutine[Any, Any, None]]) -> tuple[Result, PretendedMachine]:
    """Lets an agent run beside `scenario`, and returns how it ended by itself when that is over."""

    async def run() -> tuple[Result, PretendedMachine]:
        machine = PretendedMachine()
        policy = Policy(min_nodes=1, max_nodes=1)
        terms = Terms(policy, max_restarts=0, same_failure_limit=0, fingerprint=FINGERPRINT)
        setup = Setup("job", "a", "a.host", None, 1, ("train.py",), {}, terms, signals=())
        agent = asyncio.create_task(Agent(setup, store, machine, machine).run())
        try:
            async with asyncio.timeout(ENOUGH):
                await scenario(Job(store, machine, agent))
                return await agent, machine
        finally:
            agent.cancel()
            await asyncio.gather(agent, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


def is_header(key: str, value: bytes | None) -> bool:
    return key == KEYS.round and value is not None


def is_assignment(key: str, value: bytes | None) -> bool:
    return key.startswith(KEYS.assignments)


def tells_that_it_runs(key: str, value: bytes | None) -> bool:
    return key == NODE and value is not None and decode(Member, value).report.state == "running"


async def trains_once(job: Job) -> None:
    await job.runs(1)
    await later(1)
    job.machine.set.end()


class TestASilentStore:
    def test_when_the_workers_are_about_to_be_started_delays_the_start(self) -> None:
        store = PickedStore(lambda verb, key, value: verb == "get" and is_header(key, value))
        ended, machine = live(store, trains_once)
        assert store.happened and ended.code == SUCCEEDED
        assert any("cannot start round 1 yet" in line for line in machine.said)

    def test_when_the_assignment_is_to_be_read_delays_the_round(self) -> None:
        store = PickedStore(lambda verb, key, value: verb == "get" and is_assignment(key, value))
        ended, _ = live(store, trains_once)
        assert store.happened and ended.code == SUCCEEDED

    def test_when_a_node_learns_that_it_was_put_out_does_not_keep_it_from_coming_back(self) -> None:
        class SlowNews(PickedStore):
            """The first life hears nothing of its own key: that it is gone is learned when a report is written."""

            async def watch(
                self, key: str, from_revision: int, *, prefix: bool = False
            ) -> AsyncGenerator[tuple[Event, ...], None]:
                if key == NODE and len(self.births) == 1:
                    await asyncio.Event().wait()
                async with contextlib.aclosing(super().watch(key, from_revision, prefix=prefix)) as changes:
                    async for events in changes:
                        yield events

        async def scenario(job: Job) -> None:
            await job.runs(1)
            await later(1)
            await job.store.txn([], [Delete(NODE)])
            await job.runs(3)
            job.machine.set.end()

        store = SlowNews(lambda verb, key, _: verb == "get" and key.startswith(KEYS.evictions))
        ended, machine = live(store, scenario)
        assert store.happened and ended.code == SUCCEEDED
        assert any("registers again" in line for line in machine.said)

    def test_when_a_registration_is_answered_leaves_no_node_that_never_starts_workers(self) -> None:
        async def scenario(job: Job) -> None:
            await job.runs(1)
            assert await job.nodes() == ["a"]
            await later(1)
            job.machine.set.end()

        store = PickedStore(
            lambda verb, key, _: verb == "put" and key == NODE, MaybeApplied("no answer within 5 s"), then_silent=True
        )
        ended, _ = live(store, scenario)
        assert len(store.births) == 2 and ended.code == SUCCEEDED


class TestAStoreThatSaysNo:
    def test_to_a_report_does_not_end_the_workers(self) -> None:
        store = PickedStore(lambda _, key, value: tells_that_it_runs(key, value), StoreRefused("no space left"))
        ended, machine = live(store, trains_once)
        assert store.happened and ended.code == SUCCEEDED
        assert machine.set.started == [1]
        assert any("no space left" in line and "the workers go on" in line for line in machine.said)

    def test_to_the_master_does_not_end_the_agent(self) -> None:
        store = PickedStore(lambda verb, key, _: verb == "put" and key == KEYS.round, StoreRefused("no space left"))
        ended, machine = live(store, trains_once)
        assert store.happened and ended.code == SUCCEEDED
        assert any("no space left" in line for line in machine.said)

    def test_for_a_while_is_told_once(self) -> None:
        class Full(PickedStore):
            """Has no space for the next headers."""

            left = 10

            async def txn(
                self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
            ) -> TxnResult:
                if self.left and any(isinstance(each, Put) and each.key == KEYS.round for each in operations):
                    self.left -= 1
                    raise StoreRefused("no space left")
                return await super().txn(compares, operations, idempotent=idempotent)

        store = Full()
        ended, machine = live(store, trains_once)
        assert store.left == 0 and ended.code == SUCCEEDED
        assert sum("no space left" in line for line in machine.said) == 1


class Seen(Exception):
    """The scenario has seen enough."""


class TestAStoreWithWhatNobodyCanRead:
    def test_under_nodes_does_not_end_a_standby(self) -> None:
        async def scenario(job: Job) -> None:
            await job.runs(1)
            for key, value in (("foreign", b"?"), ("port", b'{"ports":[70000]}'), ("half", b'"\\ud800"')):
                await job.store.txn([], [Put(KEYS.nodes + key, value)])
            found = await membership.read_header(job.store, KEYS)
            assert found is not None
            assert not await membership.round_keeps(job.store, KEYS, found[0])
            await later(1)
            await job.store.txn([], [Put(KEYS.nodes + "foreign", b"??")])
            await later(1)
            assert sum("nodes/foreign: its value is not a member" in line for line in job.machine.said) == 1
            job.machine.set.end()

        ended, _ = live(PickedStore(), scenario)
        assert ended.code == SUCCEEDED

    def test_in_the_place_of_the_header_does_not_end_the_workers(self) -> None:
        async def scenario(job: Job) -> None:
            await job.runs(1)
            await job.store.txn([], [Put(KEYS.round, b'{"number":-1}')])
            await later(1)
            assert job.machine.set.alive
            assert any("round holds what this version of elastic-run cannot read" in line for line in job.machine.said)
            raise Seen

        with pytest.raises(Seen):
            live(PickedStore(), scenario)

    def test_as_an_assignment_starts_no_more_workers_than_the_node_has(self) -> None:
        class Generous(PickedStore):
            async def txn(
                self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
            ) -> TxnResult:
                more = [
                    replace(each, value=each.value.replace(b'"nproc":1,', b'"nproc":120,'))
                    if isinstance(each, Put) and is_assignment(each.key, each.value)
                    else each
                    for each in operations
                ]
                return await super().txn(compares, more, idempotent=idempotent)

        async def scenario(job: Job) -> None:
            await later(5)
            assert job.machine.set.started == []
            assert any("wants 120 workers here" in line and "this node has 1" in line for line in job.machine.said)
            raise Seen

        with pytest.raises(Seen):
            live(Generous(), scenario)

    def test_as_word_of_an_eviction_does_not_keep_a_node_from_coming_back(self) -> None:
        async def scenario(job: Job) -> None:
            await job.runs(1)
            await job.store.txn([], [Put(KEYS.eviction(job.store.births[0]), b"?"), Delete(NODE)])
            while len(job.store.births) < 2:
                await later(0.1)
            raise Seen

        with pytest.raises(Seen):
            live(PickedStore(), scenario)


def test_a_machine_that_starts_no_more_processes_ends_the_agent_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: PretendedGuard) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    async def nothing(_: Job) -> None:
        """The agent ends by itself."""

    monkeypatch.setattr(PretendedGuard, "start", full)
    ended, _ = live(PickedStore(), nothing)
    assert ended.code == FAILED
    assert "cannot run an agent" in ended.reason and "ulimit -u" in ended.reason


def test_a_start_that_failed_is_told_to_the_job() -> None:
    async def scenario(job: Job) -> None:
        job.machine.set.failing = 1
        await job.runs(2)
        job.machine.set.end()

    ended, _ = live(PickedStore(), scenario)
    assert ended.code == SUCCEEDED
    assert ended.header is not None and ended.header.tally.problems == 1


def test_the_late_answer_to_a_report_of_the_last_life_does_not_end_the_next_one() -> None:
    class LateReport(PickedStore):
        """What is said of the first life is answered in the second: that the lease is gone."""

        def __init__(self) -> None:
            super().__init__()
            self.late = 0

        async def txn(
            self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
        ) -> TxnResult:
            if not self.late and any(
                isinstance(each, Put) and tells_that_it_runs(each.key, each.value) for each in operations
            ):
                self.late += 1
                while len(self.births) < 2:
                    await later(0.01)
                raise LeaseLost("the lease is gone")
            return await super().txn(compares, operations, idempotent=idempotent)

    async def scenario(job: Job) -> None:
        await job.runs(1)
        await job.store.txn([], [Delete(NODE)])
        await job.runs(3)
        await later(10)
        assert job.machine.set.started == [1, 3]
        job.machine.set.end()

    store = LateReport()
    ended, _ = live(store, scenario)
    assert store.late and len(store.births) == 2 and ended.code == SUCCEEDED


def test_a_round_that_is_opened_while_a_node_registers_is_taken_part_in() -> None:
    class Overtaken(PickedStore):
        """The answer to the second registration comes when the round that was opened for it has been heard of."""

        def __init__(self) -> None:
            super().__init__()
            self.heard = asyncio.Event()

        async def txn(
            self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
        ) -> TxnResult:
            result = await super().txn(compares, operations, idempotent=idempotent)
            if len(self.births) == 2 and Compare(NODE, 0) in compares:
                await self.heard.wait()
            return result

        async def watch(
            self, key: str, from_revision: int, *, prefix: bool = False
        ) -> AsyncGenerator[tuple[Event, ...], None]:
            async with contextlib.aclosing(super().watch(key, from_revision, prefix=prefix)) as changes:
                async for events in changes:
                    yield events
                    # Whoever asks for the next change has done with this one.
                    if key == KEYS.round and decode(Header, events[-1].kv.value).number == 3:
                        self.heard.set()

    async def scenario(job: Job) -> None:
        await job.runs(1)
        await job.store.txn([], [Delete(NODE)])
        await job.runs(3)
        job.machine.set.end()

    store = Overtaken()
    ended, _ = live(store, scenario)
    assert store.heard.is_set() and ended.code == SUCCEEDED
