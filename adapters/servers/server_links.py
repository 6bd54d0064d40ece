"""The connections of a server: of those that ask it, and to the servers that it asks itself.

On each, one request is answered after the other: nothing more is read of a connection while what it asked waits.
"""

import asyncio
import contextlib
import socket
import ssl
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ...master.servers.slot_table import RunningServer
from ...rendezvous.host.local_socket import is_own_peer
from ...rendezvous.identity import SERVER_NAME
from ...rendezvous.wire.values import Malformed
from . import frames
from .errors import TableMisused
from .frames import Asking, Replying
from .line import give_up_silent
from .requests import PeerRequest, Reply, Request
from .server_events import Array, Arrays

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two attempts to connect to a peer."""

CONNECT_SECONDS = 5.0
"""That one attempt may take."""

HANDSHAKE_SECONDS = 10.0
"""That whoever connects by TLS may take to say who it is."""


class FramedProtocol(asyncio.BufferedProtocol):
    """One connection, read message by message, each array to where it stays.

    Args:
        kind: of the heads that come: Asking or Replying.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._transport: asyncio.Transport | None = None
        self._waits = False  # for something before more is read
        self._full = False  # too much waits to be written
        self._advancing = False
        self._reading = self._read()
        self._into: memoryview = next(self._reading) or memoryview(b"")

    @abstractmethod
    def take_message(self, head: Any, arrays: list[Array]) -> None:
        """One that is whole. Any: of the kind that was given."""

    def take_malformed(self, error: Malformed) -> None:
        """What came is no message; the connection is closed after this."""

    def _read(self) -> Iterator[memoryview | None]:
        """Each buffer that is to be filled next; None after each message. Raises Malformed."""
        while True:
            head, arrays = yield from frames.fill_message(self._kind)
            self.take_message(head, arrays)
            del head, arrays  # a quarter of a gigabyte may be waiting in it
            yield None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        made: socket.socket = transport.get_extra_info("socket")
        if made.family != socket.AF_UNIX:
            give_up_silent(made)
        elif not is_own_peer(made):
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        self._into = self._into[nbytes:]
        self._advance()

    def _advance(self) -> None:
        """Until there is something to fill, or something to wait for."""
        if self._advancing:  # what was asked a moment ago is answered at once
            return
        self._advancing = True
        try:
            while not self._into and not self._waits:
                self._into = next(self._reading) or memoryview(b"")
        except Malformed as error:
            self.take_malformed(error)
            if self._transport is not None:
                self._transport.close()
        finally:
            self._advancing = False
        self._read_or_pause()

    def wait_before_reading(self) -> None:
        """Nothing more is read until `read_on`."""
        self._waits = True

    def read_on(self) -> None:
        """What was waited for is there."""
        self._waits = False
        self._advance()

    def send_message(self, head: Asking | Replying, arrays: Arrays) -> None:
        """Raises TableMisused where it is too much."""
        parts = frames.pack(head, arrays)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(parts)

    def _read_or_pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if self._waits or self._full or not self._into:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._full = True
        self._read_or_pause()

    def resume_writing(self) -> None:
        self._full = False
        self._read_or_pause()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None


class AskerLink(FramedProtocol):
    """From a worker, an agent or another server.

    Args:
        asked: is called with what is asked.
        made, lost: are called at the connection's beginning and end.
    """

    def __init__(
        self,
        asked: Callable[["AskerLink", Request, Arrays], None],
        made: Callable[["AskerLink"], None],
        lost: Callable[["AskerLink"], None],
    ) -> None:
        self._asked = asked
        self._made = made
        self._lost = lost
        super().__init__(Asking)

    def take_message(self, head: Asking, arrays: list[Array]) -> None:
        self.wait_before_reading()
        self._asked(self, head.request, arrays)

    def take_malformed(self, error: Malformed) -> None:
        self.send_message(Replying(Reply("misused", str(error))), ())

    def answer(self, reply: Reply, arrays: Arrays) -> None:
        """What was asked last."""
        try:
            self.send_message(Replying(reply, frames.shapes_of(arrays)), arrays)
        except TableMisused as error:
            self.send_message(Replying(Reply("misused", str(error), reply.version)), ())
        self.read_on()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost(self)


class _PeerProtocol(FramedProtocol):
    """The answers of another server.

    Args:
        answered: is called with each.
        lost: is called at the connection's end.
    """

    def __init__(self, answered: Callable[[Reply], None], lost: Callable[[], None]) -> None:
        self._answered = answered
        self._lost = lost
        super().__init__(Replying)

    def take_message(self, head: Replying, arrays: list[Array]) -> None:
        self._answered(head.reply)

    def pause_writing(self) -> None:
        """Answers are read all the same, or two servers that tell each other much would wait for each other."""

    def resume_writing(self) -> None:
        """As above."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()

    @property
    def is_open(self) -> bool:
        """It was not lost."""
        return self._transport is not None

    def hang_up(self) -> None:
        """Nothing is called after this."""
        self._answered, self._lost = _ignore_reply, _ignore_end
        if self._transport is not None:
            self._transport.abort()


def _ignore_reply(reply: Reply) -> None:
    """Whoever asked has hung up."""


def _ignore_end() -> None:
    """As above."""


class PeerLink:
    """To another server: what is told goes out in its order, over one connection, which is made anew where it is lost.

    Args:
        peer: the server.
        same_machine: its local socket can be reached.
        dialling: for TLS; None: TCP is as it is.
        answered, broken: are called with each answer, and when a connection is lost.
        say: tells people.
    """

    def __init__(
        self,
        peer: RunningServer,
        same_machine: bool,
        dialling: ssl.SSLContext | None,
        answered: Callable[[Reply], None],
        broken: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._peer = peer
        self._same_machine = same_machine
        self._dialling = dialling
        self._answer_to = answered
        self._broken = broken
        self._pause = 0.0  # before the next attempt: more where a connection was lost before anything was answered
        self._say = say
        self._waiting: deque[tuple[PeerRequest, Arrays]] = deque()
        self._protocol: _PeerProtocol | None = None
        self._connecting: asyncio.Task[None] | None = None

    def follow_peer(self, peer: RunningServer) -> None:
        """It listens there from now on: another process goes on with what that server was."""
        self._peer = peer

    def tell_server(self, request: PeerRequest, arrays: Arrays) -> None:
        """Now, or when there is a connection."""
        if self._protocol is not None:
            self._protocol.send_message(Asking(request, frames.shapes_of(arrays)), arrays)
            return
        self._waiting.append((request, arrays))
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"to server {self._peer.number}")

    async def _connect(self) -> None:
        """Until it succeeds, or the slot table names that server no more and this is hung up."""
        said = False
        while True:
            await asyncio.sleep(self._pause)
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    protocol = await self._open()
                if protocol.is_open:
                    break
                error = ConnectionError("it is closed at once")
            except OSError as found:  # an ssl.SSLError and a TimeoutError, too
                error = found
            if self._pause >= LONGEST_PAUSE and not said:
                said = True
                words = str(error) or f"no answer in {CONNECT_SECONDS:g} s"
                self._say(f"cannot connect to parameter server {self._peer.number} ({words}); trying")
        self._protocol, self._connecting = protocol, None
        while self._waiting:
            self.tell_server(*self._waiting.popleft())

    async def _open(self) -> _PeerProtocol:
        """Raises OSError."""
        loop = asyncio.get_running_loop()

        def make() -> _PeerProtocol:
            return _PeerProtocol(self._take_answer, self._lose)

        if self._same_machine:
            _, protocol = await loop.create_unix_connection(make, "\0" + self._peer.local.removeprefix("@"))
            return protocol
        host, _, port = self._peer.remote.rpartition(":")
        name = SERVER_NAME if self._dialling is not None else None
        _, protocol = await loop.create_connection(
            make, host.strip("[]"), int(port), ssl=self._dialling, server_hostname=name
        )
        return protocol

    def _take_answer(self, reply: Reply) -> None:
        self._pause = 0.0
        self._answer_to(reply)

    def _lose(self) -> None:
        if self._protocol is not None:
            self._protocol = None
            self._broken()

    async def close(self) -> None:
        """Hangs up, and waits until no attempt is under way."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.hang_up()
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connecting
