"""Who asks: many requests on one connection, and their answers in any order."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import TypeVar

from .. import failure_detector
from ..wire.frame import TooLong, take_frames
from ..wire.values import Malformed, decode, encode
from .envelope import Caller, Hello, RpcError, Security, answer_of, asked, packed

T = TypeVar("T")

SILENCE = 4.0
"""Seconds beyond those of a request, after which its connection is given up: a process that lives says that it is
late."""


class Connection(asyncio.Protocol):
    """To one process, until the first trouble with it.

    Args:
        reader, writer: what has just been dialled; the peer says nothing more before it is asked.
        peer: whom, in words.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, caller: Caller) -> None:
        self._writer = writer
        self._peer = peer
        self.caller = caller
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self.lost = False
        self._why = f"{peer} closed the connection"
        writer.write(packed(Hello(caller)))
        self._got = bytearray()
        if reader.at_eof() or writer.transport.is_closing():
            self.hang_up()
        else:
            writer.transport.set_protocol(self)

    async def ask(self, method: str, request: object, answer: type[T], seconds: float) -> T:
        """The answer, of class `answer`.

        Raises RpcError; ConnectionError, TimeoutError (both are OSError), after which this connection is lost;
        TooLong.
        """
        if self.lost:
            raise ConnectionError(self._why)
        number = next(self._ids)
        message = asked(number, method, seconds, encode(request))
        answered = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(message)
            async with asyncio.timeout(seconds + SILENCE):
                body = await answered
        except TimeoutError:
            self.hang_up()  # for the others' sake too
            raise TimeoutError(f"{self._peer} has not answered for {seconds + SILENCE:g} s") from None
        finally:
            del self._asked[number]
        try:
            return decode(answer, body)
        except Malformed as error:
            self.hang_up()
            raise ConnectionError(f"{self._peer} answers what cannot be understood: {error}") from None

    def hang_up(self) -> None:
        """The next request goes over another connection."""
        self.lost = True
        self._writer.close()

    async def close(self) -> None:
        """Hangs up; whoever waits for an answer is told so."""
        self._end()

    def data_received(self, data: bytes) -> None:
        self._got += data
        try:
            for message in take_frames(self._got):
                self._take(message)
        except (Malformed, TooLong):
            self._end()  # whatever it is, the next connection is another

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _take(self, message: bytes) -> None:
        """Raises Malformed."""
        head, body = answer_of(message)
        error = RpcError(head.error, head.text) if head.error else None
        if error and not head.id:
            if not self.lost:
                self._why = f"{self._peer} refuses the connection: {error}"
            self._end()
            return
        answered = self._asked.get(head.id)
        if answered is None or answered.done():
            return
        if error:
            answered.set_exception(error)
        else:
            answered.set_result(body)

    def _end(self) -> None:
        self.hang_up()
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(ConnectionError(self._why))


@contextlib.asynccontextmanager
async def connect_to_node(
    address: str, incarnation: str, node: str, caller: Caller, security: Security
) -> AsyncGenerator[Connection]:
    """A connection to that incarnation of a node's agent, while the context lasts. Raises OSError."""
    reader, writer = await failure_detector.dial(address, incarnation, security.client)
    connection = Connection(reader, writer, f"node {node}", caller)
    try:
        yield connection
    finally:
        await connection.close()
