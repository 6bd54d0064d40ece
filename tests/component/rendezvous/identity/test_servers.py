"""Who reaches a parameter server over a real connection, and what a worker reaches with what it was given."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator

import pytest

from elastic_run.rendezvous.failure_detector import AgentListener, dial
from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.observer import DAY, issue
from elastic_run.rendezvous.identity.secret import Secret, new_secret
from elastic_run.rendezvous.identity.servers import ServersIssuer, ServersTls
from elastic_run.rendezvous.rpc.envelope import Security

SECONDS = 20.0
"""That anything here may take on a busy machine."""


def issued(secret: Secret, job: str = "job") -> tuple[ServersTls, ServersTls]:
    """A server's and a worker's."""
    return ServersIssuer(Identity(secret), job).certificates(time.time())


@contextlib.asynccontextmanager
async def server(context: ssl.SSLContext) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """One that answers each line with itself; its port, and the lines that reached it."""
    heard: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                heard.append(line)
                writer.write(line)
        writer.close()

    listening = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield listening.sockets[0].getsockname()[1], heard


async def ask(port: int, context: ssl.SSLContext) -> bytes:
    """What is answered to a line. Raises OSError, EOFError."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=SERVER_NAME)
        try:
            writer.write(b"pull\n")
            return await reader.readuntil(b"\n")
        finally:
            writer.transport.abort()


async def test_a_worker_and_another_server_reach_a_server_and_are_answered() -> None:
    secret = new_secret()
    async with server(issued(secret)[0].make_server()) as (port, heard):
        for each in issued(secret):
            assert await ask(port, each.make_client()) == b"pull\n"
        assert len(heard) == 2


async def test_an_observer_another_jobs_worker_and_an_agent_reach_no_server() -> None:
    secret = new_secret()
    listens, _ = issued(secret)
    observer, agent = issue(Identity(secret), "job", (), DAY, time.time()), Identity(secret).written()
    strangers = (
        ServersTls(listens.authority, observer.certificate, observer.key),
        ServersTls(listens.authority, agent["certificate"], agent["key"]),
        *(ServersTls(listens.authority, each.certificate, each.key) for each in issued(secret, "other")),
        *(ServersTls(listens.authority, each.certificate, each.key) for each in issued(new_secret())),
    )
    async with server(listens.make_server()) as (port, heard):
        for each in strangers:
            with pytest.raises((OSError, EOFError)):
                await ask(port, each.make_client())
        assert heard == []


async def test_a_worker_sends_nothing_to_what_is_no_server_of_its_job() -> None:
    secret = new_secret()
    server_of_other, worker_of_other = issued(secret, "other")
    own = issued(secret)
    for each in (own[1], server_of_other, worker_of_other):
        false = ServersTls(own[0].authority, each.certificate, each.key)
        async with server(false.make_server()) as (port, heard):
            with pytest.raises(ssl.SSLCertVerificationError):
                await ask(port, own[1].make_client())
            assert heard == []


async def test_an_agents_port_refuses_a_worker_and_a_server() -> None:
    secret = new_secret()
    identity = Identity(secret)
    listener = AgentListener("A1", security=Security(server=identity.server), job="job")
    await listener.start("127.0.0.1", "127.0.0.1")
    try:
        for each in issued(secret):
            dials = ServersTls(identity.written()["authority"], each.certificate, each.key).make_client()
            with pytest.raises(OSError):
                await dial(listener.address, None, dials)
        _, writer = await dial(listener.address, None, identity.client)
        writer.transport.abort()
    finally:
        await listener.close()


async def test_a_connection_outlives_the_certificate_that_it_was_made_with() -> None:
    secret = new_secret()
    listens, _ = issued(secret)
    context = listens.make_server()
    async with server(context) as (port, _):
        dials = issued(secret)[1].make_client()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=dials, server_hostname=SERVER_NAME)
        issued(secret)[0].renew(context)
        writer.write(b"push\n")
        async with asyncio.timeout(SECONDS):
            assert await reader.readline() == b"push\n"
        writer.transport.abort()
        assert await ask(port, dials) == b"pull\n"
