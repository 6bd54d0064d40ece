"""Rank 0 first: who is held, and how the nodes tell each other that rank 0 listens."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.machine.node_events import KeyWritten
from elastic_run.elastic_agent.machine.node_state import NodeSettings
from elastic_run.elastic_agent.workers import head_start
from elastic_run.elastic_agent.workers.head_start import HeadStart, begin
from elastic_run.elastic_agent.zygotes.zygote import AT_ONCE
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Report
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NoChange
from elastic_run.rendezvous.store.contract import Put
from elastic_run.rendezvous.store.memory_store import MemoryStore

KEYS = Keys("job")
TORCH = adapter("torch").meets_through


def assignment(group_rank: int, group_size: int = 2) -> Assignment:
    return Assignment(
        1,
        f"n{group_rank}",
        f"i{group_rank}",
        group_rank=group_rank,
        group_size=group_size,
        first_rank=2 * group_rank,
        nproc=2,
        world_size=2 * group_size,
        role_first_rank=2 * group_rank,
        role_world_size=2 * group_size,
        role="default",
    )


def header(prefix: str = "p1") -> Header:
    fingerprint = Fingerprint("train.py", (), "2", "2", "0")
    return Header(1, "run", "open", "start", NoChange(), fingerprint, prefix=prefix, master_port=4711)


def test_rank_0_begins_at_once() -> None:
    assert begin(TORCH, assignment(0), 0) == AT_ONCE


def test_others_of_its_node_begin_a_little_later() -> None:
    assert begin(TORCH, assignment(0), 1).later > 0 and not begin(TORCH, assignment(0), 1).held


def test_others_of_other_nodes_are_held() -> None:
    assert begin(TORCH, assignment(1), 2).held > 0


def test_nobody_is_held_where_the_framework_meets_otherwise() -> None:
    assert begin(None, assignment(1), 2) == AT_ONCE


class Node:
    """One agent's head start; `listening` says whether rank 0 does."""

    def __init__(self, store: MemoryStore, lease: int, group_rank: int, group_size: int = 2) -> None:
        self.let_go = asyncio.Event()
        self.listening = False
        self.assignment = assignment(group_rank, group_size)
        registration: Any = SimpleNamespace(lease=lease)
        inbox = Inbox(NodeSettings(), lambda: 0.0)
        inbox.post(KeyWritten(registration, Report()))
        self.head_start = HeadStart(TORCH, store, KEYS, inbox, lambda port: self.listening, self.let_go.set)

    async def expect(self, of: Header) -> None:
        await self.head_start.expect(of, self.assignment)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


@pytest.fixture
async def nodes(store: MemoryStore) -> AsyncIterator[tuple[Node, Node]]:
    lease = await store.grant(60)
    made = Node(store, lease, 0), Node(store, lease, 1)
    yield made
    for node in made:
        await node.head_start.close()


async def test_held_workers_are_let_go_when_rank_0_listens(nodes: tuple[Node, Node]) -> None:
    first, other = nodes
    for node in nodes:
        await node.expect(header())
        node.head_start.started()
    await asyncio.sleep(0.02)
    assert not other.let_go.is_set()
    first.listening = True
    await asyncio.wait_for(other.let_go.wait(), 30)


async def test_word_that_came_before_the_start_lets_go_after_it(nodes: tuple[Node, Node]) -> None:
    first, other = nodes
    first.listening = True
    for node in nodes:
        await node.expect(header())
    first.head_start.started()
    await asyncio.sleep(0.05)
    assert not other.let_go.is_set()  # nobody has been forked whom that could be said
    other.head_start.started()
    await asyncio.wait_for(other.let_go.wait(), 30)


async def test_word_of_another_round_lets_nobody_go(store: MemoryStore, nodes: tuple[Node, Node]) -> None:
    _, other = nodes
    await other.expect(header("p2"))
    other.head_start.started()
    await store.txn([], [Put(KEYS.listening, b"p1", 0)])
    await asyncio.sleep(0.05)
    assert not other.let_go.is_set()
    await store.txn([], [Put(KEYS.listening, b"p2", 0)])
    await asyncio.wait_for(other.let_go.wait(), 30)


async def test_who_hears_nothing_gives_up(nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_start, "TOLD_SECONDS", 0.02)
    _, other = nodes
    await other.expect(header())
    other.head_start.started()
    await asyncio.wait_for(other.let_go.wait(), 30)


async def test_a_job_of_one_node_tells_nobody(store: MemoryStore) -> None:
    alone = Node(store, await store.grant(60), 0, 1)
    alone.listening = True
    await alone.expect(header())
    alone.head_start.started()
    await asyncio.sleep(0.02)
    assert await store.get(KEYS.listening) is None


async def test_word_goes_with_the_lease_of_who_gave_it(store: MemoryStore, nodes: tuple[Node, Node]) -> None:
    first, other = nodes
    first.listening = True
    for node in nodes:
        await node.expect(header())
        node.head_start.started()
    await asyncio.wait_for(other.let_go.wait(), 30)
    found = await store.get(KEYS.listening)
    assert found is not None and found.value == b"p1"
    await store.revoke(found.lease)
    assert await store.get(KEYS.listening) is None
