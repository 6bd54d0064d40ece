"""Memory of a worker that its agent holds: both sides of the socket between them."""

import asyncio
import mmap
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from elastic_run.adapters.client.channel import MEMORY_SUFFIX, AgentGone
from elastic_run.adapters.client.memory_channel import create_memory, give_memory, take_memory
from elastic_run.elastic_agent import memory_holder
from elastic_run.elastic_agent.memory_holder import MOST_HOLDERS, MemoryHolder
from elastic_run.exceptions import BadCheckpoint
from elastic_run.rendezvous.host.local_socket import connected
from elastic_run.rendezvous.rpc.acceptor import Acceptor

PATIENCE = 10.0

WORKER = """
import sys
from elastic_run.adapters.client.memory_channel import create_memory, give_memory
import mmap, os
descriptor = create_memory(10_000)
with mmap.mmap(descriptor, 10_000) as memory:
    memory[:5] = b"state"
give_memory(sys.argv[1], "run.pt", 1, descriptor)
print("given", flush=True)
sys.stdin.read()
"""


class Agent:
    """The agent's side."""

    def __init__(self) -> None:
        self.address = f"@test-{secrets.token_hex(8)}"
        self.holder = MemoryHolder()
        self.freeing: list[Future[None]] = []
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(f"\0{self.address[1:]}{MEMORY_SUFFIX}")
        self.acceptor = Acceptor(listening, self.holder.let_in, lambda _: None)
        self.acceptor.start(8)

    async def closed(self) -> None:
        """What is given up is closed on threads."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*map(asyncio.wrap_future, self.freeing))

    def close(self) -> None:
        self.acceptor.close()
        self.holder.close()

    async def give(self, data: bytes, *, slot: int = 0, holder: str = "run.pt") -> None:
        descriptor = create_memory(len(data))
        try:
            with mmap.mmap(descriptor, len(data)) as memory:
                memory[:] = data
            await asyncio.to_thread(give_memory, self.address, holder, slot, descriptor)
        finally:
            os.close(descriptor)

    async def read(self, size: int, holder: str = "run.pt") -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for slot, descriptor in (await asyncio.to_thread(take_memory, self.address, holder)).items():
            found[slot] = os.pread(descriptor, size, 0)
            os.close(descriptor)
        return found


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    before = memories()
    found = Agent()
    begin = memory_holder.begin

    def begin_and_note(work: Callable[[], None]) -> Future[None]:
        found.freeing.append(begin(work))
        return found.freeing[-1]

    monkeypatch.setattr(memory_holder, "begin", begin_and_note)
    yield found
    found.close()
    await found.closed()
    assert memories() == before, "nothing is left open"


def memories() -> int:
    """How many this process has open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += "memfd:elastic-run" in str(each.readlink())
        except FileNotFoundError:  # that of this look
            continue
    return found


async def test_what_a_killed_worker_has_given_comes_to_the_next_one(agent: Agent) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, agent.address, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await worker.stdout.readline() == b"given\n"
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
    assert await agent.read(5) == {1: b"state"}


async def test_each_holder_has_two_generations_and_a_new_memory_closes_the_one_in_its_place(agent: Agent) -> None:
    before = memories()
    await agent.give(b"one", slot=0)
    await agent.give(b"two", slot=1)
    await agent.give(b"six", slot=0)
    await agent.give(b"not", slot=0, holder="other.pt")
    assert await agent.read(3) == {0: b"six", 1: b"two"}
    await agent.closed()
    assert memories() - before == 3


async def test_the_agent_answers_while_the_kernel_frees_what_it_gave_up(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await agent.give(b"one")
    [descriptor] = agent.holder.held["run.pt"][""].values()
    close, freed = os.close, threading.Event()

    def close_slowly(closed: int) -> None:
        if closed == descriptor:
            freed.wait(PATIENCE)
        close(closed)

    monkeypatch.setattr(memory_holder.os, "close", close_slowly)
    async with asyncio.timeout(PATIENCE / 2):
        await agent.give(b"two")
        assert await agent.read(3) == {0: b"two"}
    freed.set()
    await agent.closed()


async def test_who_has_given_nothing_takes_nothing(agent: Agent) -> None:
    assert await agent.read(3) == {}


async def test_memory_can_be_made_neither_shorter_nor_longer() -> None:
    descriptor = create_memory(5000)
    try:
        assert os.fstat(descriptor).st_size == 8192
        for size in (0, 10_000):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


async def test_a_script_that_makes_ever_new_checkpoints_is_refused_in_words(agent: Agent) -> None:
    for number in range(MOST_HOLDERS):
        await agent.give(b"x", holder=str(number))
    with pytest.raises(BadCheckpoint, match=r"holds the memory of 64 checkpoints already, .* give the Checkpoint"):
        await agent.give(b"x", holder="one more")
    await agent.give(b"y", holder="0")
    assert await agent.read(1, "0") == {0: b"y"}


async def test_a_stranger_is_hung_up_on_and_what_it_sent_is_closed(agent: Agent) -> None:
    before = memories()
    descriptor = create_memory(10)
    with await asyncio.to_thread(connected, f"{agent.address}{MEMORY_SUFFIX}", PATIENCE) as stranger:
        stranger.settimeout(PATIENCE)
        socket.send_fds(stranger, [b"\0\0\0\2{}"], [descriptor])
        assert await asyncio.to_thread(stranger.recv, 10) == b""
    os.close(descriptor)
    await agent.closed()
    assert memories() == before


async def test_an_agent_that_has_gone_is_told_as_such(agent: Agent) -> None:
    agent.close()
    with pytest.raises(AgentGone, match="its launcher has exited"):
        await agent.read(1)
