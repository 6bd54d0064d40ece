"""Who answers: the connections of one listening socket, and the requests on each of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import Deposed
from ..wire.frame import TooLong, read_frame
from ..wire.values import Malformed, decode, encode
from .envelope import Answered, Asked, Caller, RpcError, answered, met, packed, unpacked
from .visits import Visits

T = TypeVar("T")

AT_ONCE = 4096
"""Requests of one connection without their answers; the next ones are not read before some are answered."""


@dataclass(frozen=True, slots=True)
class Method(Generic[T]):
    """What can be asked.

    Attributes:
        takes: the class of its requests.
        answer: answers one. Raises Deposed where only the job's leader can, RpcError.
    """

    takes: type[T]
    answer: Callable[[Caller, T], Awaitable[object]]


Methods = Mapping[str, Method[Any]]
"""By name. Any: each method takes requests of its own class."""


class Server:
    """Serves the connections of one listening socket until `close`.

    Args:
        methods: what can be asked.
        token: that whoever asks must have; empty: none.
        admit: is called with each connection before anything is read of it; whoever it gives False for is hung up on.
    """

    def __init__(
        self, methods: Methods, *, token: str = "", admit: Callable[[asyncio.StreamWriter], bool] | None = None
    ) -> None:
        self._methods = methods
        self._token = token
        self._admit = admit
        self._connections = Visits()
        self._writers: dict[asyncio.StreamWriter, None] = {}  # in order of arrival
        self._listening: asyncio.Server | None = None
        self._closed = False

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._writers)

    async def listen(self, start: "Callable[..., Awaitable[asyncio.Server]]", **options: object) -> None:
        """Begins; `start` is `asyncio.start_server` or its kin, and `options` are what that takes. Raises OSError."""
        self._listening = await start(self._connected, **options)

    def hang_up(self) -> None:
        """Closes every connection, and takes new ones."""
        for writer in tuple(self._writers):
            writer.close()

    async def close(self) -> None:
        """Stops listening, and closes every connection."""
        self._closed = True
        if self._listening is not None:
            # Not `wait_closed`: it waits for peers that are just being accepted, and nobody closes those.
            self._listening.close()
        self.hang_up()
        await self._connections.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.close()
            return
        self._writers[writer] = None
        self._connections.start(self._serve(reader, writer), "a connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._admit is None or self._admit(writer):
                await _serve(reader, writer, self._methods, self._token)
        except OSError:
            pass  # the peer is gone
        finally:
            del self._writers[writer]
            writer.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, methods: Methods, token: str) -> None:
    """Answers on one connection until its peer hangs up, or what it says cannot be understood."""
    tasks = Visits()
    try:
        first = await read_frame(reader)
        if first is None:
            return  # it only watches, or has gone
        caller = met(first, token)
        while (message := await read_frame(reader)) is not None:
            head, body = unpacked(message)
            asked = decode(Asked, head)
            tasks.start(_answer(asked, body, caller, methods, writer), asked.method)
            await writer.drain()
            if len(tasks) >= AT_ONCE:
                await tasks.one_ended()
    except RpcError as error:
        writer.write(packed(Answered(0, error.code, str(error))))
    except TooLong as error:
        writer.write(packed(Answered(0, "too long", str(error))))
    except Malformed as error:
        writer.write(packed(Answered(0, "malformed", str(error))))
    finally:
        await tasks.close()


async def _answer(asked: Asked, body: bytes, caller: Caller, methods: Methods, writer: asyncio.StreamWriter) -> None:
    try:
        message = answered(asked.id, encode(await _answered(asked, body, caller, methods)))
    except RpcError as error:
        message = packed(Answered(asked.id, error.code, str(error)))
    except TooLong as error:
        message = packed(Answered(asked.id, "too long", str(error)))
    if not writer.is_closing():
        writer.write(message)


async def _answered(asked: Asked, body: bytes, caller: Caller, methods: Methods) -> object:
    """Raises RpcError, TooLong."""
    method = methods.get(asked.method)
    if method is None:
        raise RpcError("method", f"{asked.method!r} cannot be asked here, only {', '.join(map(repr, methods))}")
    try:
        request = decode(method.takes, body)
    except Malformed as error:
        raise RpcError("malformed", str(error)) from None
    limit = asyncio.timeout(asked.seconds)
    try:
        async with limit:
            return await method.answer(caller, request)
    except Deposed as error:
        raise RpcError("moved", str(error)) from None
    except (RpcError, TooLong):
        raise
    except Exception as error:  # noqa: BLE001  the edge of this request: it is reported, here and to whoever asked
        if isinstance(error, TimeoutError) and limit.expired():
            raise RpcError("late", f"{asked.method!r} has no answer within {asked.seconds:g} s") from None
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"answering {asked.method!r} failed", "exception": error, "task": asyncio.current_task()}
        )
        raise RpcError("failed", f"{asked.method!r} could not be answered: {error!r}") from None
