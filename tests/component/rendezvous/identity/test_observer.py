"""Who may look at a job and change nothing: what a listener answers, and how an observer finds an agent."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from elastic_run.elastic_agent.observation import OBSERVE
from elastic_run.launcher.diagnostics.exporter.command import Observed
from elastic_run.launcher.diagnostics.observed_job import ObservedJob
from elastic_run.launcher.diagnostics.running_job import NoAnswer
from elastic_run.master.status import Node, Status
from elastic_run.rendezvous.failure_detector import AgentListener, dial
from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.contexts import Identity, written_pair
from elastic_run.rendezvous.identity.observer import DAY, Credentials, issue
from elastic_run.rendezvous.identity.secret import Secret, new_secret
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import (
    Answered,
    Caller,
    Encoded,
    Hello,
    Nothing,
    RpcError,
    Security,
    answer_of,
    asked,
    packed,
)
from elastic_run.rendezvous.rpc.server import GREETING_LIMIT, Method, Methods
from elastic_run.rendezvous.wire.frame import read_frame
from elastic_run.rendezvous.wire.values import decode, encode

from ....doubles.statuses import STATUS

SECONDS = 20.0
"""That anything here may take on a busy machine."""

SIZE = 12_000_000
"""Bytes of a long answer: more than the kernel keeps for a connection."""


@dataclass(frozen=True, slots=True)
class Words:
    text: str


async def echo(_: Caller, words: Words) -> Words:
    return words


async def tells(_: Caller, __: Nothing) -> Status:
    return STATUS


METHODS: Methods = {
    OBSERVE: Method(Nothing, tells, observers=True),
    "open": Method(Words, echo, observers=True),
    "closed": Method(Words, echo),
}


@contextlib.asynccontextmanager
async def agent(secret: Secret, methods: Methods = METHODS, job: str | None = "job") -> AsyncGenerator[AgentListener]:
    """An agent of the job."""
    listener = AgentListener("A1", methods=methods, security=Security(server=Identity(secret).server), job=job)
    await listener.start("127.0.0.1", "127.0.0.1")
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def asking(address: str, tls: ssl.SSLContext) -> AsyncGenerator[Connection]:
    """A connection to the agent."""
    reader, writer = await dial(address, None, tls)
    connection = Connection(reader, writer, "the agent", Caller())
    try:
        yield connection
    finally:
        await connection.close()
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> tuple[Answered, bytes]:
    """The next one."""
    async with asyncio.timeout(SECONDS):
        message = await read_frame(reader)
    assert message is not None
    return answer_of(message)


def made(secret: Secret, *agents: str, job: str = "job") -> Credentials:
    return issue(Identity(secret), job, agents, DAY, time.time())


# -- what a listener answers -------------------------------------------------------------------------------------------


async def test_an_observer_is_answered_what_is_open_to_observers_and_a_node_everything() -> None:
    secret = new_secret()
    async with agent(secret) as listener:
        async with asking(listener.address, Identity(secret).client) as node:
            assert await node.ask("closed", Words("yes"), Words, SECONDS) == Words("yes")
        async with asking(listener.address, made(secret).client) as observer:
            assert await observer.ask("open", Words("yes"), Words, SECONDS) == Words("yes")
            with pytest.raises(RpcError, match="an observer may not ask 'closed'") as told:
                await observer.ask("closed", Words("yes"), Words, SECONDS)
            assert told.value.code == "role"
            with pytest.raises(ConnectionError, match="by an observer"):
                await observer.ask("open", Words("x" * GREETING_LIMIT), Words, SECONDS)


async def test_an_observer_of_another_job_or_of_another_secret_is_not_greeted() -> None:
    secret = new_secret()
    for credentials in (made(secret, job="other"), made(new_secret())):
        # Whoever changes the file in which the job's name stands does not change the certificate.
        client = replace(credentials, job="job", authority=made(secret).authority).client
        async with agent(secret) as listener:
            with pytest.raises(OSError):
                await dial(listener.address, None, client)
    async with agent(secret, job=None) as closed:
        with pytest.raises(OSError):
            await dial(closed.address, None, made(secret).client)


async def test_observers_are_asked_for_one_answer_at_a_time() -> None:
    secret, waiting, most = new_secret(), 0, 0

    async def wait(_: Caller, words: Words) -> Words:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        for _step in range(10):  # the server could begin with all others that are there
            await asyncio.sleep(0)
        waiting -= 1
        return words

    async with agent(secret, {"wait": Method(Words, wait, observers=True)}) as listener:
        for client, at_once in ((made(secret).client, 1), (Identity(secret).client, 5)):
            most = 0
            reader, writer = await dial(listener.address, None, client)
            requests = (asked(n, "wait", SECONDS, encode(Words(str(n)))) for n in range(5))
            writer.write(packed(Hello(Caller())) + b"".join(requests))
            answers = [await answer(reader) for _ in range(5)]
            assert [decode(Words, body).text for _, body in answers] == list("01234") and most == at_once
            writer.transport.abort()


async def test_beyond_so_many_observers_the_oldest_is_closed_and_the_nodes_stay() -> None:
    secret = new_secret()
    async with (
        agent(secret) as listener,
        asking(listener.address, Identity(secret).client) as node,
        contextlib.AsyncExitStack() as several,
    ):
        census = listener._server.census  # pyright: ignore[reportPrivateUsage]
        most, client = listener._server.bounds.observers, made(secret).client  # pyright: ignore[reportPrivateUsage]
        observers = [await several.enter_async_context(asking(listener.address, client)) for _ in range(most + 1)]
        with pytest.raises(ConnectionError):
            await observers[0].ask("open", Words("yes"), Words, SECONDS)
        for each in (node, observers[1], observers[-1]):
            assert await each.ask("open", Words("yes"), Words, SECONDS) == Words("yes")
        assert census.count == most + 1


async def test_an_observer_that_reads_nothing_takes_little_memory_and_keeps_nobody_from_an_answer() -> None:
    secret, long, told = new_secret(), Encoded(encode(Words("x" * SIZE))), 0

    async def tell(_: Caller, __: Nothing) -> Encoded:
        nonlocal told
        told += 1
        return long

    async with (
        agent(secret, {"long": Method(Nothing, tell, observers=True)}) as listener,
        contextlib.AsyncExitStack() as several,
    ):
        client = made(secret).client
        slow: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(2):
            reader, writer = await dial(listener.address, None, client)
            several.callback(writer.transport.abort)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
            writer.write(packed(Hello(Caller())) + 2 * asked(1, "long", SECONDS, encode(Nothing())))
            slow.append((reader, writer))  # which reads on by itself until there is more than its limit
        async with asking(listener.address, client) as observer:
            assert len((await observer.ask("long", Nothing(), Words, SECONDS)).text) == SIZE
        assert told == 3 and unsent(listener) < len(slow) * 2**20
        for reader, _ in slow:
            for _ in range(2):
                assert (await answer(reader))[1] == long.body


def unsent(listener: AgentListener) -> int:
    """Bytes that its peers have not read, and that it holds. asyncio tells of those that TLS has encrypted nowhere."""
    connections = listener._server.census.all()  # pyright: ignore[reportPrivateUsage]
    transports = [each._transport for each in connections]  # pyright: ignore[reportPrivateUsage]
    private: Any = transports  # as the attributes below are asyncio's own
    encrypted = [each._ssl_protocol._transport for each in private]
    return sum(each.get_write_buffer_size() for each in (*transports, *encrypted) if each)


async def test_an_observer_stays_a_stranger_which_has_to_go_first() -> None:
    secret = new_secret()
    async with (
        agent(secret) as listener,
        asking(listener.address, made(secret).client) as observer,
        asking(listener.address, Identity(secret).client) as node,
    ):
        await observer.ask("open", Words(""), Words, SECONDS)
        await node.ask("open", Words(""), Words, SECONDS)
        census = listener._server.census  # pyright: ignore[reportPrivateUsage]
        assert (census.count, census.strangers) == (2, 1)


async def test_a_listener_that_knows_nothing_of_roles_refuses_an_observer_in_the_handshake() -> None:
    """As Horovod's service does, which gets what is written; etcd is tried in tests/security."""
    secret = new_secret()
    server, _ = written_pair(Identity(secret).written())
    got = asyncio.Event()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.set()
        writer.write(b"greeted\n")
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        for client, told in ((made(secret).client, b""), (Identity(secret).client, b"greeted\n")):
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=client, server_hostname=SERVER_NAME
                )
                try:
                    assert await reader.readline() == told
                finally:
                    writer.transport.abort()
            except OSError:
                assert not told
            assert got.is_set() == bool(told)


# -- what an observer sees ---------------------------------------------------------------------------------------------


async def test_an_observer_follows_the_job_to_agents_that_its_file_does_not_name() -> None:
    secret = new_secret()
    async with contextlib.AsyncExitStack() as later:
        statuses = dict[str, Status]()

        def method(name: str) -> Methods:
            async def tell(_: Caller, __: Nothing) -> Status:
                return statuses[name]

            return {OBSERVE: Method(Nothing, tell, observers=True)}

        second = await later.enter_async_context(agent(secret, method("second")))
        alone = (Node("b", "b.host", "running", 1, 0, "", None, second.address),)
        for name, number in (("first", 1), ("second", 2)):
            statuses[name] = replace(STATUS, round=number, nodes=alone, standbys=())
        async with agent(secret, method("first")) as first:
            job = ObservedJob(made(secret, "127.0.0.1:1", first.address))
            assert (await job.status(SECONDS)).round == 1
        assert (await job.status(SECONDS)).round == 2  # which the second tells
    with pytest.raises(NoAnswer, match="all agents of job 'job' have ended") as told:
        await job.status(SECONDS)
    assert told.value.over
    await job.close()


async def test_where_no_agent_answers_the_observer_is_told_whom_it_asked_and_what_to_do() -> None:
    secret = new_secret()
    job = ObservedJob(made(secret, "127.0.0.1:1"))
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1.*new ones are needed") as told:
        await job.status(0.0)
    assert not told.value.over
    assert await Observed(replace(made(secret), agents=())).statuses() == {"job": None}


async def test_agents_that_let_nobody_hear_from_them_do_not_hide_one_that_runs() -> None:
    secret = new_secret()
    async with agent(secret) as listener:
        with contextlib.ExitStack() as several:
            gone = [several.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]  # accept nobody
            addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in gone]
            job = ObservedJob(made(secret, *addresses, listener.address))
            assert await job.status() == STATUS
            await job.close()


async def test_an_exporter_says_why_it_has_no_answer_when_that_changes(capsys: pytest.CaptureFixture[str]) -> None:
    secret = new_secret()
    async with agent(secret) as listener:
        ended = Observed(replace(made(secret, listener.address), until=time.time() - 1.0))
        for _ in range(3):
            assert await ended.statuses() == {"job": None}
        said = capsys.readouterr().err
        assert said == "[elastic-run] the credentials for job 'job' have ended: have new ones made\n"
        runs = Observed(made(secret, listener.address))
        assert await runs.statuses() == {"job": STATUS} and capsys.readouterr().err == ""
        await runs.close()


async def test_credentials_that_end_while_somebody_looks_say_so() -> None:
    secret = new_secret()
    async with agent(secret) as listener:
        job = ObservedJob(replace(made(secret, listener.address), until=time.time() - 1.0))
        with pytest.raises(NoAnswer, match="the credentials for job 'job' have ended"):
            await job.status(SECONDS)
