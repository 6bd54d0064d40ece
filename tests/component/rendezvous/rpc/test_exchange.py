"""One protocol between processes: what is understood is answered, and everything else is an error in words."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.base.errors import Deposed
from elastic_run.rendezvous.base.tasks import Tasks
from elastic_run.rendezvous.failure_detector import AgentListener
from elastic_run.rendezvous.rpc import acceptor, client, server
from elastic_run.rendezvous.rpc.bounds import Bounds
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import (
    VERSION,
    Answered,
    Asked,
    Caller,
    Hello,
    RpcError,
    Security,
    answer_of,
    answered,
    asked,
    packed,
    unpacked,
)
from elastic_run.rendezvous.rpc.server import Method, Methods
from elastic_run.rendezvous.wire.frame import LIMIT, TooLong, framed, read_frame
from elastic_run.rendezvous.wire.values import decode

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine; it takes milliseconds."""

LOOPBACK = "127.0.0.1"
ME = Caller("run", "a", "A1", rank=3)


@dataclass(frozen=True, slots=True)
class Words:
    text: str


class Talks:
    """Who answers.

    Attributes:
        gate: "wait" is answered once it is set.
        waiting, most: how many wait for it, and how many did at most.
        news: is set with each that begins to wait.
        cancelled, ended: how many were given up, and that one was.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.news = asyncio.Event()
        self.ended = asyncio.Event()
        self.waiting = self.most = self.cancelled = 0
        self.methods: Methods = {
            name: Method(Words, answer)
            for name, answer in (
                ("echo", self.echo),
                ("who", self.who),
                ("wait", self.wait),
                ("depose", self.depose),
                ("fail", self.fail),
                ("much", self.much),
            )
        }

    async def echo(self, _: Caller, words: Words) -> Words:
        return words

    async def who(self, caller: Caller, _: Words) -> Caller:
        return caller

    async def wait(self, _: Caller, words: Words) -> Words:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.news.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            self.ended.set()
            raise
        finally:
            self.waiting -= 1
        return words

    async def depose(self, _: Caller, __: Words) -> Words:
        raise Deposed("another leads")

    async def fail(self, _: Caller, __: Words) -> Words:
        raise KeyError("a defect")

    async def much(self, _: Caller, __: Words) -> Words:
        return Words("x" * LIMIT)

    async def begun(self, count: int) -> None:
        while self.waiting < count:
            self.news.clear()
            await self.news.wait()


@contextlib.asynccontextmanager
async def serving(talks: Talks, security: Security | None = None) -> AsyncGenerator[AgentListener, None]:
    listening = AgentListener("A1", methods=talks.methods, security=security or Security())
    await listening.start(LOOPBACK, LOOPBACK)
    try:
        async with asyncio.timeout(DEADLINE):
            yield listening
    finally:
        await listening.close()


@contextlib.asynccontextmanager
async def connected(listening: AgentListener, security: Security | None = None) -> AsyncGenerator[Connection, None]:
    given = security or Security()
    reader, writer = await failure_detector.dial(listening.address, "A1", given.client)
    made = Connection(reader, writer, "the peer", ME)
    try:
        yield made
    finally:
        await made.close()


async def ask(connection: Connection, method: str, text: str = "", seconds: float = DEADLINE) -> str:
    return (await connection.ask(method, Words(text), Words, seconds)).text


async def raw(listening: AgentListener, *messages: bytes) -> tuple[str | None, str]:
    """The code and the words with which whoever says this is answered last, before it is hung up on."""
    reader, writer = await failure_detector.dial(listening.address, "A1")
    for message in messages:
        writer.write(message)
    writer.write_eof()
    last = b""
    while message := await read_frame(reader):
        last = message
    writer.close()
    head, _ = answer_of(last)
    return head.error, head.text


async def test_many_requests_on_one_connection_are_answered_in_any_order() -> None:
    talks = Talks()
    async with serving(talks) as listening, connected(listening) as connection:
        slow = asyncio.create_task(ask(connection, "wait", "slow"))
        await talks.begun(1)
        found = await asyncio.gather(*(ask(connection, "echo", str(number)) for number in range(100)))
        assert found == [str(number) for number in range(100)]
        assert not slow.done() and listening.connections == 1
        talks.gate.set()
        assert await slow == "slow"


async def test_whoever_answers_knows_who_asks() -> None:
    async with serving(Talks()) as listening, connected(listening) as connection:
        assert await connection.ask("who", Words(""), Caller, DEADLINE) == ME


@pytest.mark.parametrize(
    ("method", "code", "words"),
    [
        ("none", "method", "'none' cannot be asked here, only 'echo'"),
        ("depose", "moved", "another leads"),
        ("much", "too long", "bytes"),
    ],
)
async def test_an_error_is_an_answer_and_the_connection_goes_on(method: str, code: str, words: str) -> None:
    async with serving(Talks()) as listening, connected(listening) as connection:
        with pytest.raises(RpcError, match=words) as caught:
            await ask(connection, method)
        assert caught.value.code == code
        assert await ask(connection, "echo", "on") == "on"


async def test_a_defect_is_reported_where_it_is_and_is_an_error_in_words_for_whoever_asked() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with serving(Talks()) as listening, connected(listening) as connection:
        with pytest.raises(RpcError, match=r"'fail' could not be answered: KeyError\('a defect'\)") as caught:
            await ask(connection, "fail")
        assert caught.value.code == "failed" and isinstance(reported[0]["exception"], KeyError)
        assert await ask(connection, "echo", "on") == "on"


async def test_a_request_that_is_not_what_its_method_takes_is_an_error_of_its_own() -> None:
    async with serving(Talks()) as listening, connected(listening) as connection:
        with pytest.raises(RpcError, match=r"Words\.text: missing") as caught:
            await connection.ask("echo", Caller(), Words, DEADLINE)
        assert caught.value.code == "malformed"
        assert await ask(connection, "echo", "on") == "on"


async def test_what_is_late_is_given_up_where_it_is_answered() -> None:
    talks = Talks()
    async with serving(talks) as listening, connected(listening) as connection:
        with pytest.raises(RpcError, match=r"no answer within 0\.05 s") as caught:
            await ask(connection, "wait", seconds=0.05)
        assert caught.value.code == "late" and talks.cancelled == 1
        assert await ask(connection, "echo", "on") == "on"


async def test_a_peer_that_says_nothing_at_all_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SILENCE", -599.95)
    async with serving(Talks()) as listening, connected(listening) as connection:
        with pytest.raises(TimeoutError, match="the peer has not answered"):
            await ask(connection, "wait", seconds=600.0)
        with pytest.raises(ConnectionError):
            await ask(connection, "echo")


async def test_requests_of_a_peer_that_has_gone_are_given_up() -> None:
    talks = Talks()
    async with serving(talks) as listening:
        async with connected(listening) as connection:
            asked = asyncio.create_task(ask(connection, "wait"))
            await talks.begun(1)
        with pytest.raises(ConnectionError, match="the peer closed the connection"):
            await asked
        await talks.ended.wait()


async def test_of_one_connection_only_so_many_requests_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "AT_ONCE", 4)
    talks = Talks()
    async with serving(talks) as listening, connected(listening) as connection, connected(listening) as other:
        asked = [asyncio.create_task(ask(connection, "wait", str(number))) for number in range(20)]
        await talks.begun(4)
        assert await ask(other, "echo", "another") == "another"
        assert talks.waiting == 4
        talks.gate.set()
        assert await asyncio.gather(*asked) == [str(number) for number in range(20)]
        assert talks.most == 4


HELLO = packed(Hello(ME))


@pytest.mark.parametrize(
    ("messages", "code", "words"),
    [
        ((b"GET / HTTP/1.1\r\n\r\n",), "too long", "at most"),
        ((framed(b"\xff"),), "malformed", "not JSON"),
        ((framed(b"{}"),), "malformed", "Version.version: missing"),
        ((framed(b'{"version":1}'),), "malformed", "Hello.caller: missing"),
        ((framed(b'{"version":7,"news":[]}'),), "version", f"speaks version {VERSION} of the protocol, and not 7"),
        ((HELLO, b"\xff\xff\xff\xff"), "too long", "at most"),
        ((b"\x00\x01\x00\x01",), "too long", "before a greeting"),
        ((HELLO, framed(b"{}")), "malformed", "Asked.id: missing"),
        ((HELLO, framed(b"\xff\n{}")), "malformed", "not JSON"),
        ((HELLO, packed(Asked(1, "echo", 5.0))), "malformed", "not JSON"),
        ((HELLO, packed(Asked(1, "e" * 101, 5.0), b"{}")), "malformed", "101 characters"),
    ],
)
async def test_what_cannot_be_understood_is_answered_in_words(
    messages: tuple[bytes, ...], code: str, words: str
) -> None:
    async with serving(Talks()) as listening, connected(listening) as connection:
        found, text = await raw(listening, *messages)
        assert found == code and words in text
        assert await ask(connection, "echo", "on") == "on"


@pytest.mark.parametrize("begun", [HELLO[:2], HELLO[:-1]])
async def test_who_does_not_end_its_first_message_is_hung_up_on(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GREETING_SECONDS", 0.0)
    async with serving(Talks()) as listening:
        silent, watcher = await failure_detector.dial(listening.address, "A1")
        reader, writer = await failure_detector.dial(listening.address, "A1")
        writer.write(begun)
        async with asyncio.timeout(DEADLINE):
            head, _ = answer_of(await read_frame(reader) or b"")
            assert head.error == "late" and "no whole first message" in head.text
            assert await reader.read() == b""
        assert not silent.at_eof()  # it has said nothing: it watches whether this process lives
        for each in (writer, watcher):
            each.close()
        async with connected(listening) as connection:
            assert await ask(connection, "echo", "on") == "on"


async def test_a_message_that_begins_and_does_not_end_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRAME_SECONDS", 0.0)
    async with serving(Talks()) as listening:
        reader, writer = await failure_detector.dial(listening.address, "A1")
        writer.write(HELLO + b"\x00\x10\x00\x00" + b"x" * 1000)
        head, _ = answer_of(await read_frame(reader) or b"")
        assert head.error == "late" and "a message that began did not end" in head.text
        assert await reader.read() == b""
        writer.close()


async def test_a_message_in_two_halves_is_answered() -> None:
    async with serving(Talks()) as listening:
        reader, writer = await failure_detector.dial(listening.address, "A1")
        message = HELLO + asked(1, "echo", DEADLINE, b'{"text":"one"}') + asked(2, "echo", DEADLINE, b'{"text":"two"}')
        for begin, end in ((0, len(HELLO) + 7), (len(HELLO) + 7, len(message) - 5), (len(message) - 5, len(message))):
            writer.write(message[begin:end])
            await writer.drain()
            await asyncio.sleep(0)
        found = [answer_of(await read_frame(reader) or b"") for _ in range(2)]
        assert [(head.id, body) for head, body in found] == [(1, b'{"text":"one"}'), (2, b'{"text":"two"}')]
        writer.close()


async def test_who_does_not_read_its_answers_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_SECONDS", 0.05)
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listening = AgentListener("A1", methods=Talks().methods, say=told.set_result)
    await listening.start(LOOPBACK, LOOPBACK)
    try:
        async with asyncio.timeout(DEADLINE):
            host, _, port = listening.address.rpartition(":")
            with socket.create_connection((host, int(port))) as deaf, contextlib.suppress(ConnectionResetError):
                deaf.setblocking(False)
                question = asked(1, "echo", DEADLINE, json.dumps({"text": "x" * 2**20}).encode())
                await asyncio.get_running_loop().sock_sendall(deaf, HELLO + question * 16)
            closed = "a connection to this process was closed; the last one because it has read no answer for 0.05 s"
            assert await told == closed and listening.connections == 0
    finally:
        await listening.close()


async def test_of_one_connection_only_so_many_bytes_are_read_ahead() -> None:
    talks = Talks()
    bounds = Bounds(10, 10, held_by_one=100)
    async with bounded(talks, bounds) as dial:
        reader, writer = await dial()
        words = [asked(number, "wait", DEADLINE, b'{"text":"%s"}' % (b"x" * 60)) for number in range(1, 6)]
        writer.write(HELLO + b"".join(words))
        await talks.begun(2)
        await ticks()
        assert talks.waiting == 2  # 140 bytes: the second was read before it was known how much it is
        talks.gate.set()
        assert sorted([answer_of(await read_frame(reader) or b"")[0].id for _ in words]) == [1, 2, 3, 4, 5]
        writer.close()


async def test_requests_without_answers_take_only_so_much_memory_of_all() -> None:
    talks = Talks()
    async with bounded(talks, Bounds(10, 10, held=100)) as dial:
        (greedy, writer), (modest, other) = await dial(), await dial()
        other.write(HELLO + asked(1, "wait", DEADLINE, b'{"text":"me"}'))
        await talks.begun(1)
        writer.write(HELLO + asked(1, "wait", DEADLINE, b'{"text":"%s"}' % (b"x" * 200)))
        with contextlib.suppress(ConnectionResetError):
            assert await greedy.read() == b""
        talks.gate.set()
        assert answer_of(await read_frame(modest) or b"") == (Answered(1), b'{"text":"me"}')
        for each in (writer, other):
            each.close()


async def test_where_no_file_can_be_opened_a_line_says_so_once_and_who_connects_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceptor, "PAUSE", 0.05)
    tries = 0

    class Full(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:  # Any: as socket has it
            nonlocal tries
            tries += 1
            if tries <= 3:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    said: list[str] = []
    made = server.Server(Talks().methods, say=said.append)
    listening = Full()
    listening.bind((LOOPBACK, 0))
    made.listen(listening)
    try:
        async with asyncio.timeout(DEADLINE):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(HELLO + asked(1, "echo", DEADLINE, b'{"text":"me"}'))
            assert answer_of(await read_frame(reader) or b"") == (Answered(1), b'{"text":"me"}')
            writer.close()
    finally:
        await made.close()
    assert said == ["no connection can be accepted for now (Too many open files): a higher ulimit -n may help"]
    assert tries <= 6, "it does not spin"


@contextlib.asynccontextmanager
async def bounded(
    talks: Talks, bounds: Bounds
) -> AsyncGenerator[Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]], None]:
    """A server with these bounds, which greets nobody; gives what dials it."""
    made = server.Server(talks.methods, bounds=bounds)
    listening = socket.create_server((LOOPBACK, 0))
    made.listen(listening)
    try:
        async with asyncio.timeout(DEADLINE):
            yield lambda: asyncio.open_connection(*listening.getsockname())
    finally:
        await made.close()


async def ticks() -> None:
    """Whatever has come is read."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_a_peer_of_another_version_is_told_why_it_is_hung_up_on() -> None:
    async with serving(Talks()) as listening:
        reader, writer = await failure_detector.dial(listening.address, "A1")
        connection = Connection(reader, Renamed(writer), "the peer", ME)  # type: ignore[arg-type]  # it writes
        with pytest.raises(ConnectionError, match="the peer refuses the connection: this process speaks version"):
            await ask(connection, "echo")
        with pytest.raises(ConnectionError, match="refuses the connection"):
            await ask(connection, "echo")
        await connection.close()


class Renamed:
    """A stream on which the first message is that of another version."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.transport = writer.transport
        self._first = True

    def write(self, data: bytes) -> None:
        self._writer.write(framed(b'{"version":2}') if self._first else data)
        self._first = False

    def close(self) -> None:
        self._writer.close()


async def test_a_message_that_is_too_long_is_not_sent() -> None:
    async with serving(Talks()) as listening, connected(listening) as connection:
        with pytest.raises(TooLong):
            await ask(connection, "echo", "x" * LIMIT)
        assert await ask(connection, "echo", "on") == "on"


# -- who may ask ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For who listens and for who dials: a certificate of this machine's own."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=test"]
    alternative = ["-addext", "subjectAltName=DNS:elastic-run"]
    subprocess.run(
        ["openssl", *words, *alternative, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(certificate, key)
    return serves, ssl.create_default_context(cafile=str(certificate))


async def test_agents_speak_tls_where_they_are_given_a_context(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    security = Security(*contexts)
    async with serving(Talks(), security) as listening:
        watching = asyncio.create_task(failure_detector.watch_until_dead(listening.address, "A1", security))
        await failure_detector.watch_until_heard(listening.address, "A1", security)
        async with connected(listening, security) as connection:
            found = await asyncio.gather(*(ask(connection, "echo", "x" * 100_000) for _ in range(20)))
            assert found == ["x" * 100_000] * 20
        await listening.close()
        assert "refuses connections" in str(await watching)


async def test_whoever_speaks_no_tls_learns_nothing_where_it_is_spoken(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_detector, "HELLO_TIMEOUT", 0.2)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # asyncio reports a handshake that fails
    async with serving(Talks(), Security(*contexts)) as listening:
        with pytest.raises(OSError):
            await failure_detector.dial(listening.address, "A1")
        with pytest.raises(OSError):  # a certificate that nobody has vouched for
            await failure_detector.dial(listening.address, "A1", ssl.create_default_context())


# -- tasks ------------------------------------------------------------------------------------------------------------


async def test_tasks_are_kept_until_they_end_and_ended_together() -> None:
    tasks, gate, ends = Tasks(), asyncio.Event(), list[str]()

    async def work(name: str, waits: bool) -> None:
        try:
            if waits:
                await asyncio.get_running_loop().create_future()
            await gate.wait()
        finally:
            ends.append(name)

    for name, waits in (("a", False), ("b", True), ("c", True)):
        tasks.begin(work(name, waits), name)
    await asyncio.sleep(0)
    gate.set()
    for _ in range(3):  # it is woken, it ends, it is forgotten
        await asyncio.sleep(0)
    assert ends == ["a"] and len(tasks) == 2
    await tasks.close()
    assert ends == ["a", "b", "c"] and len(tasks) == 0


def test_a_head_that_is_written_by_hand_is_what_is_read() -> None:
    request, answer = asked(7, "m", 2.5, b"{}")[4:], answered(7, b"{}")[4:]
    assert decode(Asked, unpacked(request)[0]) == Asked(7, "m", 2.5) and unpacked(request)[1] == b"{}"
    assert answer_of(answer) == (Answered(7), b"{}")


def test_a_head_is_one_line_whatever_the_body_is() -> None:
    head, _ = packed(Asked(1, "m", 2.0), json.dumps({"text": "a\nb"}).encode())[4:].split(b"\n", 1)
    assert json.loads(head) == {"id": 1, "method": "m", "seconds": 2.0}
