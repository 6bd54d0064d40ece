"""What is asked of an etcd before anything else: answers within bounds, and what a failed handshake means."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.store.embedded import etcd_admin, gateway, supervisor
from elastic_run.rendezvous.store.embedded.member_slot import Reach
from elastic_run.rendezvous.store.endpoint import Endpoint

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listen = Callable[[Answer], Awaitable[Endpoint]]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """`await listen(answer)` is the endpoint of a server that answers so."""
    servers: list[asyncio.Server] = []

    async def begin(answer: Answer) -> Endpoint:
        async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await answer(reader, writer)
            except ConnectionError:
                pass  # who asked has heard enough
            finally:
                writer.transport.abort()

        servers.append(await asyncio.start_server(closing, "127.0.0.1", 0))
        return Endpoint("127.0.0.1", servers[-1].sockets[0].getsockname()[1])

    yield begin
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_an_answer_without_an_end_is_no_answer(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LARGEST_REPLY", 1 << 20)
    sent = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    found = await etcd_admin.probe(await listen(endless), seconds=30.0)
    assert found.reach is Reach.FOREIGN and "more than 1 MiB" in found.detail
    assert sent < 64 << 20, "it was hung up on"


async def test_a_server_that_hangs_up_on_tls_and_answers_without_is_a_store_of_somebody_else(listen: Listen) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.read(3)) == b"GET":
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n{}")
            await writer.drain()

    identity = Identity(new_secret())
    endpoint = replace(await listen(plain), secret=identity.fingerprint)
    found = await etcd_admin.probe(endpoint, seconds=30.0, tls=identity.store)
    assert found.reach is Reach.STRANGER and "write http:// before its address" in found.detail


@pytest.mark.parametrize(
    "words",
    [
        b"Client sent an HTTP request to an HTTPS server.\n",  # etcd's, and that of all programs in Go
        b"<center>The plain HTTP request was sent to HTTPS port</center>",  # nginx
        b"Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />",  # Apache
    ],
)
async def test_a_server_with_tls_that_is_just_ending_is_no_store_of_somebody_else(listen: Listen, words: bytes) -> None:
    async def ending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.read(3)) == b"GET":
            writer.write(b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(words)
            writer.write_eof()
            await reader.read()

    identity = Identity(new_secret())
    endpoint = replace(await listen(ending), secret=identity.fingerprint)
    found = await etcd_admin.probe(endpoint, seconds=30.0, tls=identity.store)
    assert found.reach is Reach.UNREACHABLE


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request", b"502 Bad Gateway"])
async def test_a_proxy_without_tls_is_told_as_one_however_slowly_it_answers(listen: Listen, status: bytes) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.read(3)) == b"GET":
            await reader.readuntil(b"\r\n\r\n")
            for byte in b"HTTP/1.1 " + status + b"\r\n\r\nno such page":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write_eof()
            await reader.read()

    identity = Identity(new_secret())
    endpoint = replace(await listen(slow), secret=identity.fingerprint)
    found = await etcd_admin.probe(endpoint, seconds=30.0, tls=identity.store)
    assert found.reach is Reach.STRANGER and "it speaks no TLS" in found.detail


async def test_a_server_that_hangs_up_whatever_is_said_may_be_one_that_ends(listen: Listen) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    identity = Identity(new_secret())
    endpoint = replace(await listen(deaf), secret=identity.fingerprint)
    found = await etcd_admin.probe(endpoint, seconds=30.0, tls=identity.store)
    assert found.reach is Reach.UNREACHABLE


async def test_a_store_with_another_secret_may_be_left_by_another_job_or_be_the_users_own() -> None:
    theirs, ours = Identity(new_secret()), Identity(new_secret())
    async with await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs.server
    ) as server:
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], secret=ours.fingerprint)
        found = await etcd_admin.probe(endpoint, seconds=30.0, tls=ours.store)
    assert found.reach is Reach.STRANGER
    assert "elastic-run join" in found.detail and "stops 10 s after that job has ended" in found.detail
    assert "an etcd of your own, write https:// before its address" in found.detail


async def test_a_store_with_tls_is_told_from_what_is_no_store_by_who_asks_it_without() -> None:
    theirs = Identity(new_secret())
    async with await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs.server
    ) as server:
        found = await etcd_admin.probe(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), seconds=30.0)
    assert found.reach is Reach.STRANGER and "leave out --insecure" in found.detail


async def test_a_server_that_hangs_up_on_who_asks_it_without_tls_may_have_none(listen: Listen) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    found = await etcd_admin.probe(await listen(deaf), seconds=30.0)
    assert found.reach is Reach.FOREIGN and "it closes the connection" in found.detail


async def test_a_supervisor_keeps_its_connection_and_makes_another_where_it_was_closed(listen: Listen) -> None:
    connections = 0

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readuntil(b"}")
            body = b'{"connection":%d}' % connections
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()

    endpoint = await listen(twice)
    gate = supervisor._Gateway(endpoint.host, endpoint.port)  # pyright: ignore[reportPrivateUsage]
    answers = [await asyncio.to_thread(gate.post_json, "/v3/kv/range", {}) for _ in range(5)]
    assert answers == [{"connection": number} for number in (1, 1, 2, 2, 3)]
    if gate.kept is not None:
        gate.kept.close()
