"""Memory of workers between two agents: what one holds is read and copied by the other, over mutual TLS."""

import asyncio
import mmap
import os
import zlib
from collections.abc import AsyncIterator

import pytest

from elastic_run.adapters.client.memory_channel import RANGE_BYTES, MemoryRequest, create_memory
from elastic_run.adapters.client.memory_state import complete_generation, write_text
from elastic_run.elastic_agent import peer_memory
from elastic_run.elastic_agent.memory_holder import MOST_HOLDERS, MemoryHolder, NotHeld
from elastic_run.elastic_agent.peer_memory import PeerMemory
from elastic_run.rendezvous.failure_detector import AgentListener
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.rpc.envelope import Caller, Security
from elastic_run.rendezvous.store.contract import Put
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.wire.values import encode

PATIENCE = 30.0
END = 2 * RANGE_BYTES + 4096


class Pair:
    """Node A, whose worker has left a generation, and node B."""

    def __init__(self, security: Security) -> None:
        self.a, self.b = MemoryHolder(lambda: "A"), MemoryHolder(lambda: "B")
        self.listener = AgentListener("B1", methods=peer_memory.methods(lambda: self.b), security=security)
        self.store, self.keys = MemoryStore(), Keys("job")
        caller = Caller("run", "A", "A1")
        self.peers = PeerMemory(self.store, self.keys, lambda: caller, security, lambda: self.a)

    async def open(self) -> None:
        await self.listener.start("127.0.0.1", "127.0.0.1")
        member = Member("B", "B1", "127.0.0.1", self.listener.address, 1, (5001,), Fingerprint("", (), "", "", ""))
        await self.store.txn((), (Put(self.keys.node("B"), encode(member)),))

    def leave(self, slot: int, step: int) -> MemoryRequest:
        """A generation on A, and the request to copy it to B."""
        text = write_text("run", {"shards": "[]"}, 2)
        descriptor = create_memory(END + len(text))
        with mmap.mmap(descriptor, os.fstat(descriptor).st_size) as memory:
            memory[64:END] = os.urandom(END - 64)
            mark = complete_generation(memory, 1, step, text, END, zlib.crc32)
        self.a.held.setdefault("run.pt", {}).setdefault("1.0", {})[slot] = descriptor
        return MemoryRequest("replicate", "run.pt", slot, "1.0", node="B", mark=mark, size=END + len(text))

    async def copy(self, request: MemoryRequest) -> None:
        self.peers.replicate(request)
        async with asyncio.timeout(PATIENCE):
            await self.peers.finish(request)
        assert self.peers.replicate(request), "it is there, and not begun again"

    def read(self, holder: MemoryHolder, slot: int, size: int) -> bytes:
        return os.pread(holder.held["run.pt"]["1.0"][slot], size, 0)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    identity = Identity(new_secret())
    found = Pair(Security(server=identity.server, client=identity.client))
    await found.open()
    yield found
    await found.peers.close()
    await found.listener.close()
    found.a.close()
    found.b.close()


async def test_a_copy_has_the_same_bytes_and_the_one_before_it_stays_until_the_next(pair: Pair) -> None:
    first = pair.leave(0, 5)
    await pair.copy(first)
    assert pair.read(pair.b, 0, first.size) == pair.read(pair.a, 0, first.size)
    second = pair.leave(1, 6)
    await pair.copy(MemoryRequest("replicate", "run.pt", 1, "1.0", (0,), "B", second.mark, size=second.size))
    assert pair.b.held["run.pt"]["1.0"].keys() == {0, 1}
    third = pair.leave(0, 7)
    await pair.copy(MemoryRequest("replicate", "run.pt", 0, "1.0", (), "B", third.mark, size=third.size))
    assert pair.b.held["run.pt"]["1.0"].keys() == {0}
    assert pair.read(pair.b, 0, third.size) == pair.read(pair.a, 0, third.size)


async def test_any_range_is_read_from_where_it_is_held(pair: Pair) -> None:
    request = pair.leave(0, 5)
    await pair.copy(request)
    wanted = MemoryRequest("read", "run.pt", 0, "1.0", node="B", mark=request.mark, begin=1000, length=RANGE_BYTES)
    async with asyncio.timeout(PATIENCE):
        assert await pair.peers.read(wanted) == pair.read(pair.a, 0, END)[1000 : 1000 + RANGE_BYTES]


async def test_a_generation_that_was_overwritten_is_not_read(pair: Pair) -> None:
    request = pair.leave(0, 5)
    pair.leave(0, 6)
    with pytest.raises(NotHeld, match="node A holds that state no more"):
        pair.a.read_range(MemoryRequest("read", "run.pt", 0, "1.0", mark=request.mark, length=10))
    wanted = MemoryRequest("read", "run.pt", 0, "1.0", node="B", mark=request.mark, length=10)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NotHeld, match="node B holds that state no more"):
            await pair.peers.read(wanted)


async def test_what_has_no_room_is_refused_in_words(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_run.elastic_agent.memory_holder.free_memory", lambda: 1_000_000)
    request = pair.leave(0, 5)
    with pytest.raises(NotHeld, match=r"node B has 1\.0 MB left, and a copy takes 2\.1 MB"):
        pair.b.write_range(MemoryRequest("replicate", "run.pt", 0, "1.0", begin=64, size=request.size), b"x")


async def test_a_copy_of_one_checkpoint_too_many_takes_no_place(pair: Pair) -> None:
    for number in range(MOST_HOLDERS):
        pair.b.held[str(number)] = {}
    for _ in range(2):
        with pytest.raises(NotHeld, match="as many checkpoints as it may"):
            pair.b.write_range(MemoryRequest("replicate", "one more", 0, "1.0", begin=64, size=128), b"x")
    assert "one more" not in pair.b.held


def test_an_observer_may_ask_none_of_it() -> None:
    assert not any(each.observers for each in peer_memory.methods(MemoryHolder).values())
