"""A process without workers in the election: it leads, follows, loses its lease, and ends with its job."""

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from elastic_run.elastic_agent.master_process import MasterProcess, MasterSetup
from elastic_run.launcher.flags import UsageError
from elastic_run.launcher.options import parse
from elastic_run.master.controller import Terms
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.store.contract import Delete, Event, Put
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.wire.values import decode, encode

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine; it takes milliseconds."""

KEYS = Keys("job")
FINGERPRINT = Fingerprint("train.py", (), "2", "1", "0")
TERMS = Terms(Policy(min_nodes=2, max_nodes=2), 3, 0, FINGERPRINT)
END = Header(2, "run", "succeeded", "start", AllJoined(2), FINGERPRINT)


class Store(MemoryStore):
    """A store that tells (`watched`) that somebody watches the header."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = asyncio.Event()

    def watch(self, key: str, from_revision: int, *, prefix: bool = False) -> AsyncGenerator[tuple[Event, ...], None]:
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

    def process(self, name: str = "M") -> MasterProcess:
        setup = MasterSetup("job", name, "127.0.0.1", "127.0.0.1", TERMS, signals=(signal.SIGUSR1,))
        return MasterProcess(setup, self.store, self.say)

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
async def running(scene: Scene, name: str = "M") -> AsyncGenerator["asyncio.Task[tuple[int, str]]"]:
    task = asyncio.create_task(scene.process(name).run())
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
        await scene.says("this node is the job's master")
        assert (await scene.leader()).node == "M" and not task.done()


async def test_a_job_that_has_just_succeeded_is_not_begun_again() -> None:
    scene = Scene()
    await scene.store.txn([], [Put(KEYS.outcome, encode(END))])
    async with running(scene) as task:
        code, why = await task
        assert code == 2 and "has just succeeded" in why


async def test_of_two_the_other_takes_over() -> None:
    scene = Scene()
    async with running(scene, "N") as other:
        first = await scene.leader()
        async with running(scene, "M") as task:
            await scene.store.txn([], [Delete(KEYS.leader)])
            await scene.leader(other_than=first.incarnation)
            assert not task.done() and not other.done()


def open_round() -> Header:
    return Header(1, "run", "open", "start", AllJoined(2), FINGERPRINT)


def test_its_machine_needs_no_devices_of_the_workers() -> None:
    words = ["--nproc-per-node=gpu", "--nnodes=2", "--rdzv-endpoint=h", __file__]
    environ = {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(UsageError, match="no NVIDIA GPU"):
        parse(words, environ)
    assert parse(words, environ, workers=False).nproc_spec == "gpu"
