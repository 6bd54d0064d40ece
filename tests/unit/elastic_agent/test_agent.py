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
from typing import Any, ClassVar

import pytest

from elastic_run.adapters.environment import WorkerSettings
from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.agent import Agent, Result
from elastic_run.elastic_agent.hosting import Host
from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.machine.plan import FAILED, STORE_LOST, SUCCEEDED
from elastic_run.elastic_agent.setup import Setup
from elastic_run.elastic_agent.worker_server import Respond
from elastic_run.elastic_agent.workers.process_groups import ProcessGroups
from elastic_run.elastic_agent.workers.services import Services
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.workers.worker_starter import StartFailed
from elastic_run.elastic_agent.zygotes.seed import Recipe
from elastic_run.master.machine.controller import Terms
from elastic_run.master.machine.parameter_servers import NodeServers, RankWait
from elastic_run.rendezvous import membership
from elastic_run.rendezvous.base.errors import LeaseLost, MaybeApplied, StoreError, StoreRefused, StoreUnavailable
from elastic_run.rendezvous.header import Eviction, Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member
from elastic_run.rendezvous.node_reasons import ProcessGone
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.rpc.server import Methods
from elastic_run.rendezvous.store.contract import Compare, Delete, Event, Health, KeyValue, Operation, Put, TxnResult
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.wire.values import decode, encode

from ...doubles.virtual_loop import VirtualLoop

KEYS = Keys("job")
NODE = KEYS.node("a")
FINGERPRINT = Fingerprint("train.py", (), "1", "1", "0")
SILENT = StoreUnavailable("no answer within 5 s")

PATIENCE = 60.0
"""Seconds for which a node without workers waits for the store."""

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
        self.unkillable: tuple[int, ...] = ()
        self._news = asyncio.Event()

    def end(self, code: int = 0, *, stopped: bool = False) -> None:
        """The worker ends."""
        self.exits, self.alive = (Exit(self.started[-1], 0, 0, 1, code, stopped=stopped),), 0
        self._news.set()

    @property
    def pids(self) -> dict[int, int]:
        return {0: 1} if self.alive else {}

    def let_go(self) -> None:
        """None is held."""

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        raise NotImplementedError("this worker does not keep its process")

    async def fill(self, specs: Sequence[WorkerSpec], grace: float = 0.0) -> None:
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

    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None:
        return


class PretendedGuard:
    """Has nobody to guard."""

    def start(self) -> None:
        return

    def beat(self) -> None:
        return

    def pause(self) -> None:
        return

    async def close(self, *, keep_detached: bool = False) -> None:
        return


class PretendedPorts:
    """Free whenever they are wanted."""

    def __init__(self, count: int) -> None:
        self.offered: tuple[int, ...] = tuple(range(5001, 5001 + count))

    def renew(self) -> None:
        return

    def release(self, port: int) -> bool:
        return True

    def hold(self) -> None:
        return

    def close(self) -> None:
        return


class PretendedWorkerServer:
    """Nobody asks."""

    address = ""
    rounds: ClassVar[dict[int, int]] = {}

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return


class PretendedProcessGroups(ProcessGroups):
    """Nobody keeps its process."""

    def start(self, address: str) -> None:
        pass


class PretendedMachine:
    """Where the agent runs; what it says goes into `said`."""

    def __init__(self) -> None:
        self.set = PretendedWorkers()
        self.said: list[str] = []

    def workers(
        self, tag: str, silence: float | None, changed: Callable[[], None]
    ) -> tuple[PretendedWorkers, PretendedGuard, Services]:
        beside: Any = self  # no framework here has any services, and nothing is asked of these
        services = Services(tag, beside, beside, set(), None, changed)
        return self.set, PretendedGuard(), services

    def services(self, tag: str, workers: object, guardian: object, changed: Callable[[], None]) -> Services:
        raise AssertionError("what is hosted here has no processes")

    def ports(self, count: int, least: int) -> PretendedPorts:
        return PretendedPorts(count)

    def has_address(self, address: str) -> bool:
        raise AssertionError("nobody else is in the job")

    def listener(self, bind: str) -> socket.socket:
        raise AssertionError("nobody else is in the job")

    def listens(self, port: int) -> bool:
        raise AssertionError("nobody waits for rank 0")

    def worker_server(self, respond: Respond, also: Methods, say: Callable[[str], None]) -> PretendedWorkerServer:
        return PretendedWorkerServer()

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> "PretendedProcessGroups":
        return PretendedProcessGroups(changed, pid_of, half_open_seconds)

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


def live(
    store: PickedStore,
    scenario: Callable[[Job], Coroutine[Any, Any, None]],
    *,
    enough: float = ENOUGH,
    host: Host | None = None,
) -> tuple[Result, PretendedMachine]:
    """Lets an agent run beside `scenario`, and returns how it ended by itself when that is over."""

    async def run() -> tuple[Result, PretendedMachine]:
        machine = PretendedMachine()
        policy = Policy(min_nodes=1, max_nodes=1)
        terms = Terms(policy, max_restarts=0, same_failure_limit=0, fingerprint=FINGERPRINT)
        workers = WorkerSettings("job", "a", adapter("torch"), ("train.py",), {}, signals=())
        setup = Setup(workers, "a.host", None, 1, terms)
        agent = asyncio.create_task(Agent(setup, store, machine, machine, host=host).run())
        try:
            async with asyncio.timeout(enough):
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

    def test_when_a_node_learns_that_it_was_evicted_does_not_keep_it_from_coming_back(self) -> None:
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
        assert any("no space left" in line and "running workers continue" in line for line in machine.said)

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


class Closed(PickedStore):
    """Reads as ever, and takes no write while `closed`; a write that it has taken already is none.

    Args:
        error: what it says.
        after: it closes when it has taken a value for a key with this beginning.
    """

    def __init__(self, error: StoreError, after: str) -> None:
        super().__init__()
        self._says = error
        self._after = after
        self.closed = False

    def mend(self) -> None:
        """From now on it takes all."""
        self.closed, self._after = False, "nothing"

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        puts = [each for each in operations if isinstance(each, Put)]
        if self.closed and puts:
            raise self._says
        result = await super().txn(compares, operations, idempotent=idempotent)
        self.closed = self.closed or any(each.key.startswith(self._after) for each in puts)
        return result

    async def grant(self, ttl: int) -> int:
        if self.closed:
            raise self._says
        return await super().grant(ttl)


class Away(PickedStore):
    """Answers nothing from `leave` to `come_back`."""

    def __init__(self) -> None:
        super().__init__()
        self._health = super().health
        self._changed = asyncio.Event()

    @property
    def health(self) -> Health:
        return self._health

    def leave(self) -> None:
        self._set_health(False)

    def come_back(self) -> None:
        self._set_health(True)

    def _set_health(self, reachable: bool) -> None:
        self._health = Health(reachable, asyncio.get_running_loop().time(), "" if reachable else "timed out")
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def health_changed(self) -> Health:
        await self._changed.wait()
        return self._health

    async def get(self, key: str) -> KeyValue | None:
        if not self._health.reachable:
            raise SILENT
        return await super().get(key)

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        if not self._health.reachable:
            raise SILENT
        return await super().txn(compares, operations, idempotent=idempotent)


NO_SPACE = StoreRefused("no space left")


class TestAStoreThatIsAway:
    """A node whose workers have ended waits for it from then on, however long it had been away before."""

    async def ends_long_after(self, store: Away, job: Job) -> None:
        """The job's only round ends when the store has been away for a long time."""
        await job.runs(1)
        store.leave()
        await later(5 * PATIENCE)
        job.machine.set.end()

    def test_has_the_success_of_workers_that_ended_meanwhile_when_it_comes_back(self) -> None:
        store = Away()

        async def scenario(job: Job) -> None:
            await self.ends_long_after(store, job)
            await later(PATIENCE / 2)
            store.come_back()

        ended, _ = live(store, scenario, enough=10 * PATIENCE)
        assert ended.code == SUCCEEDED

    def test_for_ever_ends_the_node_in_words_when_its_patience_is_over(self) -> None:
        store = Away()

        async def scenario(job: Job) -> None:
            await self.ends_long_after(store, job)
            began = asyncio.get_running_loop().time()
            await asyncio.wait({job.agent})
            assert PATIENCE <= asyncio.get_running_loop().time() - began <= PATIENCE + 10

        ended, _ = live(store, scenario, enough=10 * PATIENCE)
        assert ended.code == STORE_LOST
        assert "have all ended with exit code 0" in ended.reason


class SlowRenewal(PickedStore):
    """Needs 2 s to write a node's key, and as long to end a renewal that is cancelled.

    Attributes:
        most: renewals at one time.
    """

    renewals = most = 0

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        if any(isinstance(each, Put) and each.key == NODE for each in operations) and not self.births:
            await later(2.0)
        return await super().txn(compares, operations, idempotent=idempotent)

    async def keep_alive(self, lease: int, ttl: float) -> None:
        self.renewals += 1
        self.most = max(self.most, self.renewals)
        try:
            await super().keep_alive(lease, ttl)
            if not self.births:
                await later(ENOUGH)
        finally:
            if not self.happened:
                self.happened = True
                await later(2.0)
            self.renewals -= 1


def test_a_lease_is_not_renewed_by_what_kept_it_before_it_was_used() -> None:
    async def scenario(job: Job) -> None:
        await job.runs(1)
        await later(10.0)
        job.machine.set.end()

    store = SlowRenewal()
    ended, _ = live(store, scenario)
    assert store.happened and store.most == 1
    assert ended.code == SUCCEEDED


class TestAStoreThatTakesNoWrites:
    """Not once, but until somebody mends it."""

    @pytest.mark.parametrize("error", [NO_SPACE, SILENT], ids=["refuses", "is silent"])
    @pytest.mark.parametrize("after", [NODE, KEYS.leader], ids=["before it leads", "as the master"])
    def test_ends_a_node_without_workers_in_words_and_in_time(self, error: StoreError, after: str) -> None:
        async def scenario(job: Job) -> None:
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(2 * PATIENCE):
                await asyncio.wait({job.agent})
            assert asyncio.get_running_loop().time() - began >= PATIENCE

        ended, machine = live(Closed(error, after), scenario, enough=2 * PATIENCE)
        assert ended.code == STORE_LOST
        assert str(error) in ended.reason and "this node's workers are not running" in ended.reason
        assert "then start this command again" in ended.reason
        assert sum(str(error) in line for line in machine.said) in (1, 2)  # at once, and again after a minute

    @pytest.mark.parametrize("error", [NO_SPACE, SILENT], ids=["refuses", "is silent"])
    def test_does_not_end_workers_that_run(self, error: StoreError) -> None:
        store = Closed(error, KEYS.round)

        async def scenario(job: Job) -> None:
            await job.runs(1)
            await later(2 * PATIENCE)
            assert job.machine.set.alive
            job.machine.set.end()
            await later(PATIENCE / 2)
            store.mend()

        ended, _ = live(store, scenario, enough=6 * PATIENCE)
        assert ended.code == SUCCEEDED

    def test_for_a_while_does_not_keep_a_node_that_was_evicted_from_coming_back(self) -> None:
        store = Closed(NO_SPACE, "nothing")

        async def scenario(job: Job) -> None:
            await job.runs(1)
            await evict(job)
            store.closed = True
            await later(PATIENCE / 2)
            assert not job.agent.done() and not job.machine.set.alive
            store.mend()
            while not job.machine.set.alive:
                await later(0.1)
            job.machine.set.end()

        ended, machine = live(store, scenario, enough=2 * PATIENCE)
        assert ended.code == SUCCEEDED and len(store.births) == 2
        assert sum("this node's registration is delayed" in line for line in machine.said) == 1

    def test_ends_a_node_that_was_evicted_in_words_and_in_time(self) -> None:
        store = Closed(NO_SPACE, "nothing")

        async def scenario(job: Job) -> None:
            await job.runs(1)
            await evict(job)
            store.closed = True
            began = asyncio.get_running_loop().time()
            await asyncio.wait({job.agent})
            assert PATIENCE <= asyncio.get_running_loop().time() - began <= PATIENCE + 10

        ended, _ = live(store, scenario, enough=2 * PATIENCE)
        assert ended.code == STORE_LOST and "no space left" in ended.reason

    def test_refuses_a_node_that_was_never_in_the_job_at_once(self) -> None:
        async def nothing(_: Job) -> None:
            pass

        store = Closed(NO_SPACE, "nothing")
        store.closed = True
        with pytest.raises(StoreRefused, match="no space left"):
            live(store, nothing)


async def evict(job: Job) -> None:
    """The node is taken for dead, though it lives."""
    word = Put(KEYS.eviction(job.store.births[-1]), encode(Eviction(ProcessGone("a:1"))))
    await job.store.txn([], [Delete(NODE), word])


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
            assert any(
                "round has a value that this version of elastic-run cannot read" in line for line in job.machine.said
            )
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
            assert any("assigns 120 workers to this node" in line and "has 1" in line for line in job.machine.said)
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


class PretendedServers:
    """What runs beside the workers; `events` are in order."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.failure = self.return_wanted = ""
        self.events: list[str] = []

    async def run(self) -> None:
        self.events.append("runs")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.events.append("looks no more")

    async def answer(self, version: int, wait: RankWait, round: int) -> str:
        return f"newer than {version}"

    def describe(self) -> NodeServers:
        return NodeServers("a")

    def pause(self) -> None:
        raise AssertionError("nobody presses Ctrl-Z")

    resume = pause

    async def give_away(self) -> None:
        self.events.append("gives away")

    async def close(self) -> None:
        self.events.append("ends")


def test_what_runs_beside_the_workers_runs_until_they_have_ended() -> None:
    made: list[PretendedServers] = []

    def host(*parts: Any) -> PretendedServers:
        made.append(PretendedServers(next(each for each in parts if isinstance(each, Inbox))))
        return made[0]

    ended, _ = live(PickedStore(), trains_once, host=host)
    assert ended.code == SUCCEEDED and made[0].events == ["runs", "gives away", "looks no more", "ends"]


def test_a_job_whose_servers_have_lost_what_they_held_ends_once_with_the_reason() -> None:
    made: list[PretendedServers] = []

    def host(*parts: Any) -> PretendedServers:
        made.append(PretendedServers(next(each for each in parts if isinstance(each, Inbox))))
        return made[0]

    async def scenario(job: Job) -> None:
        await job.runs(1)
        made[0].failure = "the rows of server 0 are gone"
        made[0].inbox.wake()

    ended, machine = live(PickedStore(), scenario, host=host)
    assert ended.code == FAILED and "node a cannot continue: the rows of server 0 are gone" in ended.reason
    assert machine.set.started == [1]
