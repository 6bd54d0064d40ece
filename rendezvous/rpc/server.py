"""Who answers: the connections of one listening socket, and the requests on each of them.

A request costs one step of the event loop to be read and one to be answered. So frames are taken as the loop reads
them, and a task that has answered is given the next request, in place of a task for each.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import Deposed
from ..wire.frame import PREFIX, TooLong, take_frames
from ..wire.values import Malformed, decode, encode
from .envelope import Answered, Asked, Caller, Code, RpcError, answered, met, packed, unpacked
from .visits import Visits

T = TypeVar("T")

AT_ONCE = 4096
"""Requests of one connection without their answers; the next ones are not read before some are answered."""

GREETING_LIMIT = 2**16
"""Bytes in the first message of a connection: whoever has not said who it is takes no more memory than that."""

GREETING_SECONDS = 30.0
"""Between the first byte of a connection and the end of its first message; whoever says nothing may stay, as those do
who only watch whether this process lives."""

IDLE = 16
"""Tasks of one connection that wait for requests; after a burst the others end."""


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
        admit: is called with each connection before anything is read of it; whoever it gives False for, or raises
            OSError, is hung up on.
    """

    def __init__(
        self, methods: Methods, *, token: str = "", admit: Callable[[asyncio.Transport], bool] | None = None
    ) -> None:
        self._methods = methods
        self._token = token
        self._admit = admit
        self._connections: dict[_Connection, None] = {}  # in order of arrival
        self._tasks = Visits()
        self._listening: asyncio.Server | None = None
        self._closed = False

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def listen(self, start: "Callable[..., Awaitable[asyncio.Server]]", **options: object) -> None:
        """Begins; `start` is the loop's `create_server` or its kin, and `options` are what that takes.

        Raises OSError.
        """
        self._listening = await start(self._connection, **options)

    def hang_up(self) -> None:
        """Closes every connection, and takes new ones."""
        for connection in tuple(self._connections):
            connection.close()

    async def close(self) -> None:
        """Stops listening, and closes every connection."""
        self._closed = True
        if self._listening is not None:
            # Not `wait_closed`: it waits for peers that are just being accepted, and nobody closes those.
            self._listening.close()
        self.hang_up()
        await self._tasks.close()

    def _connection(self) -> "_Connection":
        return _Connection(self._methods, self._token, self._admitted, self._left, self._tasks)

    def _admitted(self, connection: "_Connection", transport: asyncio.Transport) -> bool:
        if self._closed:
            return False
        self._connections[connection] = None
        try:
            return self._admit is None or self._admit(transport)
        except OSError:
            return False  # the peer is gone

    def _left(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)


class _Connection(asyncio.Protocol):
    """Answers on one connection until its peer hangs up, or what it says cannot be understood.

    Args:
        methods, token: the server's.
        admitted: is asked once, before anything is read.
        left: is told when there will be no more answers.
        tasks: keeps the tasks that answer.
    """

    def __init__(
        self,
        methods: Methods,
        token: str,
        admitted: "Callable[[_Connection, asyncio.Transport], bool]",
        left: "Callable[[_Connection], None]",
        tasks: Visits,
    ) -> None:
        self._methods = methods
        self._token = token
        self._admitted = admitted
        self._left = left
        self._tasks = tasks
        self._transport: asyncio.Transport | None = None  # None: not connected yet, or closed
        self._caller: Caller | None = None
        self._got = bytearray()
        self._deadline: asyncio.TimerHandle | None = None  # of the first message, once it has begun
        self._running: set[asyncio.Task[None]] = set()
        self._idle: deque[asyncio.Future[tuple[Asked, bytes]]] = deque()
        self._asked = 0  # requests that are being answered
        self._full = False  # the peer does not read what it is answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._admitted(self, transport):
            self.close()

    def data_received(self, data: bytes) -> None:
        self._got += data
        self._take()
        if self._caller is None and self._deadline is None and self._transport is not None:
            self._deadline = asyncio.get_running_loop().call_later(GREETING_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def pause_writing(self) -> None:
        self._full = True
        self._pace()

    def resume_writing(self) -> None:
        self._full = False
        self._take()

    def close(self) -> None:
        """Hangs up, once what was answered is on its way; what was not is given up."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        transport.close()
        self._met()
        self._left(self)
        for task in self._running:
            task.cancel()

    def _take(self) -> None:
        """Begins to answer what has come, as far as there is room for it."""
        try:
            if self._caller is None:
                _check_greeting(self._got)
            for message in take_frames(self._got):
                self._begin(message)
                if self._transport is None or self._busy():
                    break
        except RpcError as error:
            self._refuse(error.code, error)
        except TooLong as error:
            self._refuse("too long", error)
        except Malformed as error:
            self._refuse("malformed", error)
        self._pace()

    def _refuse(self, code: Code, error: Exception) -> None:
        self._say(packed(Answered(0, code, str(error))))
        self.close()

    def _met(self) -> None:
        """The first message is there, or is awaited no more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._refuse("late", TimeoutError(f"no whole first message within {GREETING_SECONDS:g} s of its first byte"))

    def _busy(self) -> bool:
        return self._full or self._asked >= AT_ONCE

    def _pace(self) -> None:
        """Reads on or does not; asked again, a transport does nothing."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._busy():
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _begin(self, message: bytes) -> None:
        """Raises Malformed, RpcError."""
        if self._caller is None:
            self._caller = met(message, self._token)
            self._met()
            return
        head, body = unpacked(message)
        asked = decode(Asked, head)
        self._asked += 1
        while self._idle:
            if not (idle := self._idle.popleft()).done():
                idle.set_result((asked, body))
                return
        self._tasks.start(self._answer(self._caller, asked, body), "answers on a connection")

    async def _answer(self, caller: Caller, asked: Asked, body: bytes) -> None:
        """Answers one request, and then others for as long as there are some."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            while True:
                try:
                    self._say(await _answer(asked, body, caller, self._methods))
                finally:
                    busy = self._busy()
                    self._asked -= 1
                    if busy:
                        self._take()
                if self._transport is None or len(self._idle) >= IDLE:
                    return
                self._idle.append(idle := asyncio.get_running_loop().create_future())
                asked, body = await idle
        finally:
            self._running.discard(task)

    def _say(self, message: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(message)


def _check_greeting(got: bytearray) -> None:
    """Raises TooLong where the message that begins here is no greeting."""
    if len(got) >= PREFIX.size and (length := PREFIX.unpack_from(got)[0]) > GREETING_LIMIT:
        raise TooLong(f"a first message of {length} bytes: at most {GREETING_LIMIT} can be sent before a greeting")


async def _answer(asked: Asked, body: bytes, caller: Caller, methods: Methods) -> bytes:
    try:
        return answered(asked.id, encode(await _answered(asked, body, caller, methods)))
    except RpcError as error:
        return packed(Answered(asked.id, error.code, str(error)))
    except TooLong as error:
        return packed(Answered(asked.id, "too long", str(error)))


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
