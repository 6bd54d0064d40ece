"""A process without workers in the election: it leads, follows, loses its lease, and ends with its job."""

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from elastic_run.elastic_agent.candidate import Candidacy, Candidate
from elastic_run.elastic_agent.master_process import MasterProcess, MasterSetup
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.run import code_of
from elastic_run.master.beside import BesideMaster
from elastic_run.master.diagnosis.examination import REPLACE
from elastic_run.master.diagnosis.requests import Done, Replacement
from elastic_run.master.machine.controller import Terms
from elastic_run.master.servers.placement import ServersWanted
from elastic_run.master.servers.slot_keeper import SlotKeeper
from elastic_run.master.servers.slot_table import RunningServer, SlotTable
from elastic_run.rendezvous.base.errors import Deposed, OtherSecret, Sealed
from elastic_run.rendezvous.election import Leadership
from elastic_run.rendezvous.failure_detector import AgentListener
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member, Report
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.rpc.envelope import Caller
from elastic_run.rendezvous.rpc.server import Method
from elastic_run.rendezvous.store import contract
from elastic_run.rendezvous.store.contract import Delete, Event, KeyValue, Put
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.seal import SEALED
from elastic_run.rendezvous.store.waits import Waits
from elastic_run.rendezvous.wire.values import decode, encode

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine; it takes milliseconds."""

T = TypeVar("T")

KEYS = Keys("job")
FINGERPRINT = Fingerprint("train.py", (), "2", "1", "0")
TERMS = Terms(Policy(min_nodes=2, max_nodes=2), 3, 0, FINGERPRINT)
END = Header(2, "run", "succeeded", "start", AllJoined(2), FINGERPRINT)


class Store(MemoryStore):
    """A store that tells that somebody watches the header (`watched`) or the leader (`followed`)."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = asyncio.Event()
        self.followed = asyncio.Event()

    def watch(self, key: str, from_revision: int, *, prefix: bool = False) -> AsyncGenerator[tuple[Event, ...], None]:
        if key == KEYS.leader:
            self.followed.set()
        if key == KEYS.round:
            self.watched.set()
        return super().watch(key, from_revision, prefix=prefix)


@dataclass
class Scene:
    store: Store = field(default_factory=Store)
    said: list[str] = field(default_factory=list[str])
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, line: str) -> None:
        self.said.append(line)
        self.news.set()

    async def says(self, words: str) -> None:
        while not any(words in line for line in self.said):
            self.news.clear()
            await self.news.wait()

    def process(self, name: str = "M", *beside: BesideMaster) -> MasterProcess:
        setup = MasterSetup("job", name, "127.0.0.1", "127.0.0.1", TERMS, signals=(signal.SIGUSR1,), beside=beside)
        return MasterProcess(setup, self.store, self.say)

    async def value(self, kind: type[T], key: str, fits: Callable[[T], bool]) -> T:
        """What the key holds, as soon as it fits."""
        while True:
            found = await self.store.list(key)
            if found.items and fits(value := decode(kind, found.items[0].value)):
                return value
            async for _ in self.store.watch(key, found.revision + 1):
                break

    async def leader(self, *, other_than: str = "") -> Leader:
        """Who leads, as soon as somebody of another incarnation does."""
        while True:
            found = await self.store.list(KEYS.leader)
            for item in found.items:
                leader = decode(Leader, item.value)
                if leader.incarnation != other_than:
                    return leader
            async for _ in self.store.watch(KEYS.leader, found.revision + 1):
                break


@contextlib.asynccontextmanager
async def running(
    scene: Scene, name: str = "M", *beside: BesideMaster
) -> AsyncGenerator["asyncio.Task[tuple[int, str]]"]:
    task = asyncio.create_task(scene.process(name, *beside).run())
    try:
        async with asyncio.timeout(DEADLINE):
            yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_leads_where_nobody_else_does_and_no_node_is_registered() -> None:
    scene = Scene()
    async with running(scene) as task:
        leader = await scene.leader()
        assert leader.node == "M" and leader.agent_address.startswith("127.0.0.1:")
        assert (await scene.store.list(KEYS.nodes)).items == ()
        assert not task.done()


async def test_a_signal_ends_it_and_its_leadership() -> None:
    scene = Scene()
    async with running(scene) as task:
        await scene.leader()
        signal.raise_signal(signal.SIGUSR1)
        assert (await task)[0] == 128 + signal.SIGUSR1
        assert await scene.store.get(KEYS.leader) is None


async def test_whose_lease_has_ended_comes_as_another_incarnation() -> None:
    scene = Scene()
    async with running(scene) as task:
        first = await scene.leader()
        held = await scene.store.get(KEYS.leader)
        assert held is not None
        await scene.store.revoke(held.lease)
        second = await scene.leader(other_than=first.incarnation)
        assert second.node == "M" and second.agent_address == first.agent_address
        assert any("lease expired" in line for line in scene.said) and not task.done()


class Beside:
    """Works beside masters: tells of each leadership that begins (`begun`), and of what it ended with (`ended`)."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[Leadership] = asyncio.Queue()
        self.ended: asyncio.Queue[Leadership] = asyncio.Queue()
        self.fails: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work_beside(
        self, store: contract.Store, keys: Keys, leadership: Leadership, say: Callable[[str], None], waits: Waits
    ) -> None:
        """See `BesideMaster`."""
        assert keys.job == "job" and (found := await store.get(keys.leader))
        assert found.create_revision == leadership.revision
        self.begun.put_nowait(leadership)
        try:
            await asyncio.shield(self.fails)
        finally:
            self.ended.put_nowait(leadership)


async def test_what_works_beside_a_master_does_so_for_each_leadership_and_ends_with_it() -> None:
    scene, beside = Scene(), Beside()
    async with running(scene, "M", beside) as task:
        first = await beside.begun.get()
        held = await scene.store.get(KEYS.leader)
        assert held is not None and beside.ended.empty()
        await scene.store.revoke(held.lease)
        assert await beside.ended.get() == first
        assert (await beside.begun.get()).revision > first.revision and not task.done()
        signal.raise_signal(signal.SIGUSR1)
        await task
        assert not beside.ended.empty()


async def test_an_error_beside_a_master_is_not_swallowed() -> None:
    scene, beside = Scene(), Beside()
    async with running(scene, "M", beside) as task:
        await beside.begun.get()
        beside.fails.set_exception(ZeroDivisionError("seven"))
        with pytest.raises(ZeroDivisionError, match="seven"):
            await task


async def test_what_finds_beside_a_master_that_another_leads_ends_the_leadership_only() -> None:
    scene, beside = Scene(), Beside()
    async with running(scene, "M", beside) as task:
        await beside.begun.get()
        before, beside.fails = beside.fails, asyncio.get_running_loop().create_future()
        before.set_exception(Deposed("another master leads"))
        await beside.begun.get()
        assert "the job's master no longer runs here: another master leads" in scene.said and not task.done()


async def test_nothing_works_beside_a_master_once_its_job_has_ended() -> None:
    scene, beside = Scene(), Beside()
    node = Member("a", "a#1", "host", "", 1, (5001,), FINGERPRINT)
    lease = await scene.store.grant(60)
    await scene.store.txn([], [Put(KEYS.node("a"), encode(node), lease)])
    terms = dataclasses.replace(TERMS, policy=Policy(min_nodes=1, max_nodes=1), max_restarts=0)
    setup = MasterSetup("job", "M", "127.0.0.1", "127.0.0.1", terms, beside=(beside,))
    task = asyncio.create_task(MasterProcess(setup, scene.store, scene.say).run())
    async with asyncio.timeout(DEADLINE):
        await beside.begun.get()
        await scene.value(Header, KEYS.round, lambda header: header.state == "open")
        done = dataclasses.replace(node, report=Report(state="succeeded", round=1))
        await scene.store.txn([], [Put(KEYS.node("a"), encode(done), lease)])
        await beside.ended.get()  # the node is there still
        assert await scene.store.get(KEYS.node("a"))
        await scene.store.revoke(lease)
        assert (await task)[0] == 0


async def test_a_job_with_servers_leaves_no_key_of_theirs() -> None:
    scene = Scene()
    node = Member("a", "a#1", "host", "", 1, (5001,), FINGERPRINT)
    lease = await scene.store.grant(60)
    await scene.store.txn([], [Put(KEYS.node("a"), encode(node), lease)])
    terms = dataclasses.replace(TERMS, policy=Policy(min_nodes=1, max_nodes=1), max_restarts=0)
    keeper = SlotKeeper(ServersWanted(least=1, most=1, replicas=0))
    setup = MasterSetup("job", "M", "127.0.0.1", "127.0.0.1", terms, beside=(keeper,))
    task = asyncio.create_task(MasterProcess(setup, scene.store, scene.say).run())
    async with asyncio.timeout(DEADLINE):
        (place,) = (await scene.value(SlotTable, KEYS.slots, lambda table: bool(table.places))).places
        server = RunningServer(place.number, "a server", place.node)
        await scene.store.txn([], [Put(KEYS.server(place.number), encode(server), lease)])
        await scene.value(SlotTable, KEYS.slots, lambda table: table.serves)
        await scene.value(Header, KEYS.round, lambda header: header.state == "open")
        done = dataclasses.replace(node, report=Report(state="succeeded", round=1))
        await scene.store.txn([], [Put(KEYS.node("a"), encode(done), lease)])
        await scene.value(Header, KEYS.round, lambda header: header.final)
        await scene.store.revoke(lease)
        assert (await task)[0] == 0
    assert [item.key for item in (await scene.store.list(KEYS.root)).items] == [KEYS.outcome]


async def campaigned(scene: Scene) -> None:
    """A process without a listener takes part in the election."""
    lease = await scene.store.grant(60)
    waits = Waits(scene.say, asyncio.get_running_loop().time)

    async def stand() -> Candidacy:
        return Candidacy(Leader("C", "c#1", ""), lease)

    async with asyncio.timeout(DEADLINE):
        await Candidate(scene.store, KEYS, TERMS, scene.say, waits).run(stand, lambda: "")


async def test_who_is_elected_beside_nodes_of_another_secret_changes_nothing_and_says_so() -> None:
    scene = Scene()
    assignment = KEYS.assignment("1.1.a", "A")
    await scene.store.txn([], [Put(key, SEALED) for key in (KEYS.round, KEYS.node("A"), assignment)])
    before = (await scene.store.list(KEYS.root)).items
    with pytest.raises(OtherSecret, match="job job runs there, and its nodes have another secret"):
        await campaigned(scene)
    assert (await scene.store.list(KEYS.root)).items == before


async def test_a_header_of_another_secret_alone_does_not_keep_a_job_from_starting() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.round, SEALED)])
    task = asyncio.create_task(campaigned(scene))
    async with asyncio.timeout(DEADLINE):
        await scene.says("cannot read the value of /elastic-run/job/round: the job starts over")
        await scene.says("the job's master now runs here")
    task.cancel()
    await asyncio.wait({task})


async def test_who_comes_to_a_leader_of_another_secret_is_told_so_at_once() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.leader, SEALED)])
    with pytest.raises(OtherSecret, match="job job runs there, and its nodes have another secret"):
        await campaigned(scene)
    async with running(scene) as task:
        assert (await task)[0] == 2 and "another secret" in (await task)[1]


async def test_who_comes_to_a_round_of_another_secret_is_told_so_at_once() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.round, SEALED)])
    async with running(scene) as task:
        with pytest.raises(Sealed, match="cannot read /elastic-run/job/round: the job's nodes have another secret"):
            await task
    assert code_of(Sealed()) == code_of(OtherSecret()) == 2


async def test_who_knew_the_leader_waits_where_another_secret_writes_over_it() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.leader, encode(Leader("A", "A1", "")))])
    task = asyncio.create_task(campaigned(scene))
    async with asyncio.timeout(DEADLINE):
        await scene.store.followed.wait()
        await scene.store.txn([], [Put(KEYS.leader, SEALED)])
        await scene.says("waiting until that changes")
        await scene.store.txn([], [Delete(KEYS.leader)])
        await scene.says("the job's master now runs here")
    task.cancel()
    await asyncio.wait({task})


async def test_who_follows_ends_with_the_job() -> None:
    scene = Scene()
    other = Leader("a", "A1", "")
    await scene.store.txn([], [Put(KEYS.leader, encode(other)), Put(KEYS.round, encode(open_round()))])
    async with running(scene) as task:
        await scene.store.watched.wait()
        await scene.store.txn([], [Put(KEYS.round, encode(END))])
        code, why = await task
        assert code == 0 and why


async def test_the_end_of_an_earlier_run_is_not_its_own() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.leader, encode(Leader("a", "A1", ""))), Put(KEYS.round, encode(END))])
    async with running(scene) as task:
        another = dataclasses.replace(END, run="another", state="failed")
        await scene.store.watched.wait()
        await scene.store.txn([], [Put(KEYS.round, encode(dataclasses.replace(END, number=3)))])
        await scene.store.txn([], [Put(KEYS.round, encode(another))])
        assert (await task)[0] == 1


async def test_after_the_end_of_an_earlier_run_it_leads_the_next() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.round, encode(dataclasses.replace(END, state="failed")))])
    async with running(scene) as task:
        await scene.says("the job's master now runs here")
        assert (await scene.leader()).node == "M" and not task.done()


async def test_a_job_that_has_just_succeeded_is_not_begun_again() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.outcome, encode(END))])
    async with running(scene) as task:
        code, why = await task
        assert code == 2 and "has just succeeded" in why


async def test_who_is_elected_after_a_success_that_it_missed_begins_nothing() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.leader, encode(Leader("a", "A1", ""))), Put(KEYS.round, encode(open_round()))])
    async with running(scene) as task:
        await scene.store.watched.wait()
        removed = [Delete(KEYS.round), Delete(KEYS.leader)]
        await scene.store.txn([], [Put(KEYS.outcome, encode(END)), *removed])
        code, why = await task
        assert code == 0 and why == str(END.reason)
        assert not any("the job's master" in line for line in scene.said)


class RemovedMeanwhile(Store):
    """Where another master removes the header of a job that has succeeded, once that has been read."""

    async def get(self, key: str) -> KeyValue | None:
        found = await super().get(key)
        if found and key == KEYS.round and await super().get(KEYS.outcome):
            await self.txn([], [Delete(key)])
        return found


async def test_who_is_slow_after_a_success_does_not_lead_a_job_over_the_empty_store() -> None:
    scene = Scene(RemovedMeanwhile())
    await scene.store.txn([], [Put(KEYS.leader, encode(Leader("a", "A1", ""))), Put(KEYS.round, encode(open_round()))])
    async with running(scene) as task:
        await scene.store.watched.wait()
        await scene.store.txn([], [Put(KEYS.outcome, encode(END)), Delete(KEYS.leader)])
        code, why = await task
        assert code == 0 and why == str(END.reason)
        assert not any("the job's master" in line for line in scene.said)


async def test_of_two_the_other_takes_over() -> None:
    scene = Scene()
    async with running(scene, "N") as other:
        first = await scene.leader()
        async with running(scene, "M") as task:
            await scene.store.txn([], [Delete(KEYS.leader)])
            await scene.leader(other_than=first.incarnation)
            assert not task.done() and not other.done()


async def test_it_tells_which_nodes_have_agreed_to_leave() -> None:
    scene = Scene()
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(DEADLINE):
        for name, agrees in (("a", True), ("b", False), ("gone", None)):

            async def replace(_: Caller, replacement: Replacement, agrees: bool = bool(agrees)) -> Done:
                return Done(agrees and replacement == Replacement(3, "it is cancelled"))

            listener = AgentListener(f"{name}#1", methods={REPLACE: Method(Replacement, replace)})
            await listener.start("127.0.0.1", "127.0.0.1")
            member = Member(name, f"{name}#1", "host", listener.address, 1, (5001,), FINGERPRINT)
            await scene.store.txn([], [Put(KEYS.node(name), encode(member))])
            if agrees is None:
                await listener.close()
            else:
                stack.push_async_callback(listener.close)
        assert await scene.process().ask_to_leave(3, "it is cancelled") == {"a"}


def open_round() -> Header:
    return Header(1, "run", "open", "start", AllJoined(2), FINGERPRINT)


def test_its_machine_needs_no_devices_of_the_workers() -> None:
    words = ["--nproc-per-node=gpu", "--nnodes=2", "--rdzv-endpoint=h", __file__]
    environ = {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(UsageError, match="no NVIDIA GPU"):
        parse(words, environ)
    assert parse(words, environ, workers=False).nproc_spec == "gpu"
