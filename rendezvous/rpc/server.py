"""Who answers: the connections of one listening socket, and the requests on each of them.

A request costs one step of the event loop to be read and one to be answered. So frames are taken as the loop reads
them, and a task that has answered is given the next request, in place of a task for each.

Everybody in the network can connect, so what one peer can take is bounded before anything is known of it and after
(`bounds.py`). No connection is refused because of a bound: it is accepted and closed, because a refusal is the
evidence of death (`failure_detector.py`).

An observer of the job (`identity/observer.py`) is told from an agent by its certificate. It may ask what is open to
observers, one request at a time, and stays a stranger for the bounds: it cannot take an agent's place. What observers
are answered is written in pieces, one piece of all of them in a step of the loop, and an observer that does not read
gets no more of them: the loop has other work, and an answer may have megabytes.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..base.errors import Deposed
from ..base.frozen import dataclass
from ..base.tasks import Tasks
from ..identity import observed
from ..wire.frame import PREFIX, TooLong, take_frames
from ..wire.values import Malformed, decode, encode
from .acceptor import Acceptor
from .bounds import Bounds, Census, bounds_of_this_process
from .envelope import Answered, Asked, Caller, Code, Encoded, RpcError, answer_begun, answered, met, packed, unpacked

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

AT_ONCE = 4096
"""Requests of one connection without their answers; the next ones are not read before some are answered."""

GREETING_LIMIT = 2**15
"""Bytes in the first message of a connection, and in each of an observer: a stranger takes no more memory than that."""

GREETING_SECONDS = 3.0
"""Between the first byte of a connection and the end of its first message, and for a TLS handshake. Whoever says
nothing may stay, as those do who only watch whether this process lives."""

SHUTDOWN_SECONDS = 0.5
"""For a peer to answer the end of a TLS connection, before it is closed all the same."""

FRAME_SECONDS = 30.0
"""Between the first byte of a later message and its last: LIMIT at half a megabyte a second."""

STALLED_SECONDS = 30.0
"""For which a peer may read nothing of what it is answered."""

PIECE = 2**18
"""Bytes of an observer's answer that are written at a time: with TLS that takes about a fifth of a millisecond."""

IDLE = 16
"""Tasks of one connection that wait for requests; after a burst the others end."""

REPORT_SECONDS = 60.0
"""Between two lines about connections that were closed because of a bound."""


@dataclass(frozen=True, slots=True)
class Method(Generic[T]):
    """What can be asked.

    Attributes:
        takes: the class of its requests.
        answer: answers one. Raises Deposed where only the job's leader can, RpcError.
        observers: an observer may ask it, too: it changes nothing.
    """

    takes: type[T]
    answer: Callable[[Caller, T], Awaitable[object]]
    observers: bool = False


Methods = Mapping[str, Method[Any]]
"""By name. Any: each method takes requests of its own class."""


class Server:
    """Serves the connections of one listening socket until `close`.

    Args:
        tls: what is spoken; None: no TLS. A handshake has GREETING_SECONDS.
        lets_in: is asked of each socket at once, before anything is made of it; None: everybody.
        admit: is called with each connection before anything is read of it, and after the TLS handshake; whoever it
            gives False for, or raises OSError, is hung up on.
        say: prints a line about connections that were closed because of a bound, or cannot be accepted, once in
            REPORT_SECONDS.
        bounds: None: those that fit this process's limit of descriptors.

    Attributes:
        proven: whoever gets through the handshake has shown a certificate.
    """

    def __init__(
        self,
        methods: Methods,
        *,
        tls: "SSLContext | None" = None,
        lets_in: Callable[[socket.socket], bool] | None = None,
        admit: Callable[[asyncio.Transport], bool] | None = None,
        say: Callable[[str], None] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.methods = methods
        self._tls = tls
        self.proven = tls is not None and tls.verify_mode.name == "CERT_REQUIRED"
        self.bounds = bounds or bounds_of_this_process(silent=not self.proven)
        self.tasks = Tasks()
        self.census: Census[_Connection] = Census(self.bounds)
        self.turn = asyncio.Lock()  # one observer is written to
        self._lets_in = lets_in
        self._admit = admit
        self._say = say
        self._acceptor: Acceptor | None = None
        self._closed = False
        self._closings = 0  # because of a bound, since the last line about it
        self._told_at: float | None = None

    @property
    def connections(self) -> int:
        return self.census.count

    def listen(self, listening: socket.socket, *, backlog: int = 1024) -> None:
        """Begins; `backlog`: peers that may wait to be accepted, where the kernel allows so many. Raises OSError."""
        self._acceptor = Acceptor(listening, self._take, self._short)
        self._acceptor.start(backlog)

    def hang_up(self) -> None:
        """Closes every connection, and takes new ones."""
        for connection in self.census.all():
            connection.close()

    async def close(self) -> None:
        """Stops listening, and closes every connection."""
        self._closed = True
        if self._acceptor is not None:
            self._acceptor.close()
        self.hang_up()
        await self.tasks.close()

    def _take(self, accepted: socket.socket) -> None:
        if self._lets_in is not None and not self._lets_in(accepted):
            accepted.close()
            return
        connection = _Connection(self, accepted)
        for other in self.census.arrives(connection):
            self.drop(other, "there are too many connections")
        if not connection.gone:
            connection.begin(self.tasks.begin(self._connect(connection, accepted), "takes a connection"))

    async def _connect(self, connection: "_Connection", accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}  # Any: keyword arguments
        if self._tls is not None:
            options = {
                "ssl": self._tls,
                "ssl_handshake_timeout": GREETING_SECONDS,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, **options)
        except OSError:  # no handshake: a TimeoutError and an SSLError are one
            connection.close()

    def admitted(self, transport: asyncio.Transport) -> bool:
        if self._closed:
            return False
        try:
            return self._admit is None or self._admit(transport)
        except OSError:
            return False  # the peer is gone

    def drop(self, connection: "_Connection", why: str) -> None:
        """Closes one because of a bound, without a word to it, and tells of it now and then."""
        connection.abort()
        self._closings += 1
        now = asyncio.get_running_loop().time()
        if self._say is None or (self._told_at is not None and now - self._told_at < REPORT_SECONDS):
            return
        number, self._closings, self._told_at = self._closings, 0, now
        which = "a connection to this process was" if number == 1 else f"{number} connections to this process were"
        self._say(f"{which} closed; the last one because {why}")

    def _short(self, error: OSError) -> None:
        """Nothing can be accepted now."""
        if self._say is not None:
            self._say(f"no connection can be accepted for now ({error.strerror}): a higher ulimit -n may help")


class _Connection(asyncio.Protocol):
    """Answers on one connection until its peer hangs up, or what it says cannot be understood.

    Args:
        server: what can be asked, and its bounds.
        accepted: the socket, which is this one's until a transport has it.

    Attributes:
        gone: there will be no more answers.
    """

    def __init__(self, server: Server, accepted: socket.socket) -> None:
        self.gone = False
        self._server = server
        self._accepted: socket.socket | None = accepted
        self._opening: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None  # None: not connected yet, or closed
        self._caller: Caller | None = None
        self._observes = False  # by its certificate
        self._got = bytearray()
        self._deadline: asyncio.TimerHandle | None = None  # of the message that has begun
        self._stalled: asyncio.TimerHandle | None = None  # while the peer does not read
        self._running: set[asyncio.Task[None]] = set()
        self._idle: deque[asyncio.Future[tuple[Asked, bytes]]] = deque()
        self._asked = 0  # requests that are being answered
        self._held = 0  # bytes of them
        self._counted = False  # the census knows of an unfinished message
        self._full = False  # the peer does not read what it is answered
        self._room: asyncio.Future[None] | None = None  # an observer's answer waits until it does

    def begin(self, opening: "asyncio.Task[None]") -> None:
        self._opening = opening
        opening.add_done_callback(self._opened)

    def _opened(self, _: object) -> None:
        self._opening = None
        if self._accepted is not None:  # no transport was made of it
            self._accepted.close()
            self._accepted = None
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._accepted = None
        if self.gone:  # while it was taken
            transport.abort()
            return
        self._transport = transport
        if not self._server.admitted(transport):
            self.close()
            return
        self._observes = observed(transport.get_extra_info("peercert")) is not None
        if self._observes:
            for other in self._server.census.observes(self):
                self._server.drop(other, "there are too many observers")
        elif self._server.proven:
            self._server.census.meets(self)

    def data_received(self, data: bytes) -> None:
        self._got += data
        self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort()

    def pause_writing(self) -> None:
        self._full = True
        self._stalled = asyncio.get_running_loop().call_later(
            STALLED_SECONDS, self._server.drop, self, f"it has read no answer for {STALLED_SECONDS:g} s"
        )
        self._pace()

    def resume_writing(self) -> None:
        self._full = False
        self._stalled = _cancelled(self._stalled)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._take()

    def close(self) -> None:
        """Hangs up, once what was answered is on its way; what was not is given up."""
        if (transport := self._end()) is not None:
            transport.close()
            if not self._full:
                return
            transport.abort()  # it has read nothing for a while, and would keep the descriptor for ever

    def abort(self) -> None:
        if (transport := self._end()) is not None:
            transport.abort()

    def _end(self) -> asyncio.Transport | None:
        transport, self._transport = self._transport, None
        if self.gone:
            return transport
        self.gone = True
        if self._accepted is not None and self._opening is None:
            self._accepted.close()  # nobody has begun to take it
            self._accepted = None
        if self._opening is not None:
            self._opening.cancel()
        self._deadline = _cancelled(self._deadline)
        self._stalled = _cancelled(self._stalled)
        self._server.census.leaves(self)
        for task in self._running:
            task.cancel()
        return transport

    def _take(self) -> None:
        """Begins to answer what has come, as far as there is room for it."""
        begun = False
        try:
            if self._caller is None or self._observes:
                _check_short(self._got)
            for message in take_frames(self._got) if not self._busy() else ():
                begun = True
                self._begin(message)
                if self._transport is None or self._busy():
                    break
        except RpcError as error:
            self._refuse(error.code, error)
        except TooLong as error:
            self._refuse("too long", error)
        except Malformed as error:
            self._refuse("malformed", error)
        if not self.gone:
            self._bound(begun)
        self._pace()

    def _bound(self, begun: bool) -> None:
        """What has begun to come has to end in time, and to fit into what all unfinished messages may take."""
        if self._caller is None:
            if self._got and self._deadline is None:
                self._await_message(GREETING_SECONDS)
            return
        unfinished = 0 if self._busy() else len(self._got)  # where it is busy, it is this end that waits
        if begun or not unfinished:
            self._deadline = _cancelled(self._deadline)
        if unfinished and self._deadline is None:
            self._await_message(FRAME_SECONDS)
        if unfinished or self._counted:
            self._counted = bool(unfinished)
            for other in self._server.census.unfinished(self, unfinished, again=begun):
                self._server.drop(other, "unfinished messages take too much memory")

    def _await_message(self, seconds: float) -> None:
        self._deadline = _cancelled(self._deadline)
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._too_late, seconds)

    def _too_late(self, seconds: float) -> None:
        if self._caller is None:
            self._refuse("late", TimeoutError(f"no whole first message within {seconds:g} s"))
        else:
            self._refuse("late", TimeoutError(f"a message that began did not end within {seconds:g} s"))

    def _refuse(self, code: Code, error: Exception) -> None:
        self._say(packed(Answered(0, code, str(error))))
        self.close()

    def _busy(self) -> bool:
        at_once = 1 if self._observes else AT_ONCE
        return self._full or self._asked >= at_once or self._held > self._server.bounds.held_by_one

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
            self._caller = met(message)
            self._deadline = _cancelled(self._deadline)
            if not self._observes:
                self._server.census.meets(self)
            return
        head, body = unpacked(message)
        asked = decode(Asked, head)
        self._asked += 1
        self._hold(len(body))
        while self._idle:
            if not (idle := self._idle.popleft()).done():
                idle.set_result((asked, body))
                return
        self._server.tasks.begin(self._answer(self._caller, asked, body), "answers on a connection")

    def _hold(self, size: int) -> None:
        """So many bytes more of requests are being answered, or fewer."""
        self._held += size
        if not self.gone:
            for other in self._server.census.holds(self, self._held):
                self._server.drop(other, "requests without their answers take too much memory")

    async def _answer(self, caller: Caller, asked: Asked, body: bytes) -> None:
        """Answers one request, and then others for as long as there are some."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            while True:
                try:
                    parts = await _answer(asked, body, caller, self._server.methods, self._observes)
                    if self._observes:
                        await self._say_in_pieces(parts)
                    else:
                        for part in parts:
                            self._say(part)
                finally:
                    busy = self._busy()
                    self._asked -= 1
                    self._hold(-len(body))
                    if busy:
                        self._take()
                if self._transport is None or len(self._idle) >= IDLE:
                    return
                self._idle.append(idle := asyncio.get_running_loop().create_future())
                asked, body = await idle
        finally:
            self._running.discard(task)

    async def _say_in_pieces(self, parts: tuple[bytes, ...]) -> None:
        """To an observer: a piece at a time of all of them, and only while it reads."""
        for part in map(memoryview, parts):
            for begun in range(0, len(part), PIECE):
                while self._full:
                    self._room = asyncio.get_running_loop().create_future()
                    await self._room
                async with self._server.turn:
                    self._say(part[begun : begun + PIECE])
                    await asyncio.sleep(0)

    def _say(self, message: bytes | memoryview) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(message)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _check_short(got: bytearray) -> None:
    """Raises TooLong where the message that begins here is longer than a greeting."""
    if len(got) >= PREFIX.size and (length := PREFIX.unpack_from(got)[0]) > GREETING_LIMIT:
        raise TooLong(
            f"a message of {length} bytes: at most {GREETING_LIMIT} can be sent before a greeting, and by an observer"
        )


async def _answer(asked: Asked, body: bytes, caller: Caller, methods: Methods, observes: bool) -> tuple[bytes, ...]:
    """The message, in parts: what many are given is not copied for each."""
    try:
        given = await _answered(asked, body, caller, methods, observes)
        if isinstance(given, Encoded):
            return answer_begun(asked.id, len(given.body)), given.body
        return (answered(asked.id, encode(given)),)
    except RpcError as error:
        return (packed(Answered(asked.id, error.code, str(error))),)
    except TooLong as error:
        return (packed(Answered(asked.id, "too long", str(error))),)


async def _answered(asked: Asked, body: bytes, caller: Caller, methods: Methods, observes: bool) -> object:
    """Raises RpcError, TooLong."""
    method = methods.get(asked.method)
    if method is None:
        raise RpcError("method", f"{asked.method!r} cannot be asked here, only {', '.join(map(repr, methods))}")
    if observes and not method.observers:
        raise RpcError("role", f"an observer may not ask {asked.method!r}: that needs the job's secret")
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
            {
                "message": f"answering {asked.method!r} failed",
                "exception": error,
            }  # "task": Python 3.12 runs it in its context
        )
        raise RpcError("failed", f"{asked.method!r} could not be answered: {error!r}") from None
