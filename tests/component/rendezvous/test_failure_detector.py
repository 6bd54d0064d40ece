"""Proof of death over loopback: refused by the one that once greeted, and nothing less."""

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.failure_detector import AgentListener, watch_until_dead
from elastic_run.rendezvous.node_reasons import LossReason

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine; it takes milliseconds."""

LOOPBACK = "127.0.0.1"


@contextlib.asynccontextmanager
async def serving(incarnation: str, bind: str = LOOPBACK) -> AsyncGenerator[AgentListener, None]:
    server = AgentListener(incarnation)
    await server.start(bind, bind)
    try:
        yield server
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def watching(address: str, incarnation: str) -> AsyncGenerator[asyncio.Task[LossReason], None]:
    task = asyncio.create_task(watch_until_dead(address, incarnation))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def verdict(task: asyncio.Task[LossReason]) -> str:
    async with asyncio.timeout(DEADLINE):
        return str(await task)


class Greetings:
    """Counts the greetings that watchers have read."""

    def __init__(self) -> None:
        self._read = asyncio.Semaphore(0)

    def count(self, read: Callable[[bytes], str], line: bytes) -> str:
        self._read.release()
        return read(line)

    async def next(self) -> None:
        """A watcher has read one more; it goes on with it before anybody else's turn."""
        async with asyncio.timeout(DEADLINE):
            await self._read.acquire()


@pytest.fixture
def greetings(monkeypatch: pytest.MonkeyPatch) -> Greetings:
    seen = Greetings()
    counting = functools.partial(seen.count, failure_detector.read_incarnation)
    monkeypatch.setattr(failure_detector, "read_incarnation", counting)
    return seen


async def hello(address: str) -> str:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return json.loads(line)["incarnation"]


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Impostor:
    """Another program on a port: it answers each connection as told, and counts them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.connections = asyncio.Semaphore(0)

    async def connected(self, times: int) -> None:
        async with asyncio.timeout(DEADLINE):
            for _ in range(times):
                await self.connections.acquire()

    @contextlib.asynccontextmanager
    async def on(self, port: int = 0) -> AsyncGenerator[str, None]:
        server = await asyncio.start_server(self._serve, LOOPBACK, port)
        try:
            yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await self._answer(reader, writer)
        writer.close()
        self.connections.release()


def saying(*lines: bytes) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in lines:
            writer.write(line)
        await writer.drain()

    return answer


async def test_a_server_greets_with_its_incarnation() -> None:
    async with serving("A1") as server:
        assert await hello(server.address) == "A1"


async def test_a_server_greets_anew_after_a_rebirth() -> None:
    async with serving("A1") as server:
        await server.greet_as("A2")
        assert await hello(server.address) == "A2"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_a_server_on_ipv6_has_an_address_in_brackets_and_can_be_watched(greetings: Greetings) -> None:
    async with serving("A1", "::1") as server:
        assert server.address.startswith("[::1]:")
        async with watching(server.address, "A1") as task:
            await greetings.next()
            await server.close()
            assert "refuses connections" in await verdict(task)


async def test_a_server_on_every_interface_is_reached_at_what_it_advertises() -> None:
    server = AgentListener("A1")
    await server.start("", LOOPBACK)
    try:
        assert server.address.startswith(f"{LOOPBACK}:")
        assert await hello(server.address) == "A1"
    finally:
        await server.close()


async def test_closing_a_server_twice_or_before_its_start_is_no_error() -> None:
    server = AgentListener("A1")
    await server.close()
    await server.start(LOOPBACK, LOOPBACK)
    await server.close()
    await server.close()


async def test_a_process_that_greeted_and_then_refuses_is_dead(greetings: Greetings) -> None:
    async with serving("A1") as server, watching(server.address, "A1") as task:
        await greetings.next()
        assert not task.done()
        await server.close()
        words = await verdict(task)
        assert server.address in words and "gone" in words


async def test_a_process_that_greets_with_another_name_after_its_own_is_dead(greetings: Greetings) -> None:
    async with serving("A1") as server, watching(server.address, "A1") as task:
        await greetings.next()
        await server.greet_as("A2")
        assert "another process" in await verdict(task)


async def test_a_process_that_never_greeted_is_not_dead_because_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "REDIAL_PAUSES", (0.001,))
    with socket.socket() as closed:
        closed.bind((LOOPBACK, 0))
        port: int = closed.getsockname()[1]
        async with watching(f"{LOOPBACK}:{port}", "A1") as task:
            for _ in range(50):
                await asyncio.sleep(0)
            assert not task.done()


async def test_a_process_that_never_greeted_is_not_dead_because_another_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failure_detector, "REDIAL_PAUSES", (0.001,))
    other = Impostor(saying(b'{"incarnation":"B1"}\n'))
    async with other.on() as address, watching(address, "A1") as task:
        await other.connected(3)
        assert not task.done()


async def test_a_connection_that_broke_proves_nothing_where_the_process_still_greets(greetings: Greetings) -> None:
    async with serving("A1") as server, watching(server.address, "A1") as task:
        await greetings.next()
        await server.greet_as("A1")  # closes every connection
        await greetings.next()
        assert not task.done()


@pytest.mark.parametrize(
    "noise", [b"", b"\n", b"HTTP/1.1 400 Bad Request\r\n", b"[1]\n", b'"x"\n', b"\xff\xfe\n", b"{}\n"]
)
async def test_what_is_no_greeting_proves_nothing(noise: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "REDIAL_PAUSES", (0.001,))
    other = Impostor(saying(noise))
    async with other.on() as address, watching(address, "A1") as task:
        await other.connected(3)
        assert not task.done()


async def test_a_program_that_talks_without_end_on_that_port_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "REDIAL_PAUSES", (0.001,))
    other = Impostor(saying(b"x" * 200_000))
    async with other.on() as address, watching(address, "A1") as task:
        await asyncio.wait({task, asyncio.ensure_future(other.connected(2))}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()


async def test_a_process_that_starts_to_listen_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "REDIAL_PAUSES", (0.001,))
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    async with watching(f"{LOOPBACK}:{port}", "A1") as task:
        for _ in range(20):
            await asyncio.sleep(0)
        other = Impostor(saying(b'{"incarnation":"A1"}\n'))
        async with other.on(port):
            await other.connected(1)
        assert "refuses connections" in await verdict(task)


async def test_a_stopped_process_which_accepts_but_does_not_greet_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "HELLO_TIMEOUT", 0.02)
    monkeypatch.setattr(failure_detector, "REDIAL_PAUSES", (0.001,))
    never = asyncio.Event()

    async def silence(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        waiting.release()
        await never.wait()

    waiting = asyncio.Semaphore(0)
    async with Impostor(silence).on() as address, watching(address, "A1") as task:
        async with asyncio.timeout(DEADLINE):
            for _ in range(3):
                await waiting.acquire()
        assert not task.done()
        never.set()


async def test_a_watch_that_is_cancelled_ends_and_closes_its_connection(greetings: Greetings) -> None:
    async def greet_and_hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"incarnation":"A1"}\n')
        assert await reader.read() == b""

    other = Impostor(greet_and_hold)
    async with other.on() as address:
        async with watching(address, "A1") as task:
            await greetings.next()
        assert task.cancelled()
        await other.connected(1)


@pytest.mark.parametrize("address", ["h:65536", "h:99999", "h:0", "h:-1", "h:\u0664", "h", "", ":", "h:1e3"])
async def test_what_is_no_address_is_no_evidence_and_no_error(address: str) -> None:
    with pytest.raises(ConnectionError):
        await failure_detector.dial(address, "A1")
    async with watching(address, "A1") as task:
        await asyncio.sleep(0)
        assert not task.done()
