"""The simulated network: how long a message takes between two machines, and TCP over it.

`Network` knows of machines by name only. `Stack` is the TCP of all machines: what a machine's kernel does for a
process (accept, acknowledge, retransmit, close) it also does for a frozen one, and once more for a killed one.
Send buffers have no end here, so nobody is ever told to pause writing.
"""

import asyncio
import contextvars
import errno
import itertools
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel import Handle, Kernel, Process

ANY = "*"
"""Every machine, in a rule."""

LOCAL_DELAY = 0.00002
"""Seconds that a message takes within one machine."""

SYN_RETRIES = 6
FIRST_SYN_PAUSE = 1.0
"""Seconds until an unanswered attempt to connect is repeated; each pause is twice the one before."""

RETRIES = 15
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 120.0
"""Seconds until a segment that was lost is sent again; each pause is twice the one before."""

FIRST_PORT = 20_000

Link = tuple[str, str]


class Network:
    """What happens to a message from one machine to another.

    Rules name a source and a target, or `*` for every one; the most exact rule holds. They are one-way.

    Args:
        random: decides about every message.
        latency: seconds, from the shortest to the longest.
    """

    def __init__(self, random: random.Random, latency: tuple[float, float] = (0.0002, 0.002)) -> None:
        self.random = random
        self._shortest, longest = latency
        self._spread = longest - self._shortest
        self._off: dict[str, None] = {}
        self._cut: dict[Link, None] = {}
        self._lossy: dict[Link, float] = {}
        self._slow: dict[Link, float] = {}
        self._refused: dict[Link, None] = {}
        self._healthy = True  # no rule at all: the usual case, asked for every message

    def delay(self, source: str, target: str) -> float | None:
        """Seconds that one message takes now; None: it does not arrive."""
        if source == target:
            return None if source in self._off else LOCAL_DELAY
        seconds = self._shortest + self._spread * self.random.random()
        if self._healthy:
            return seconds
        if not self.reaches(source, target):
            return None
        probability = _rule(self._lossy, source, target)
        if probability is not None and self.random.random() < probability:
            return None
        return seconds * (_rule(self._slow, source, target) or 1.0)

    def reaches(self, source: str, target: str) -> bool:
        """Whether messages get through at all, apart from those that are lost by chance."""
        if source in self._off or target in self._off:
            return False
        if source == target or not self._cut:
            return True
        cut = self._cut
        return not ((source, target) in cut or (source, ANY) in cut or (ANY, target) in cut or (ANY, ANY) in cut)

    def refuses(self, source: str, target: str) -> bool:
        """Whether something between them refuses new connections."""
        if source == target or not self._refused:
            return False
        return any(link in self._refused for link in _links(source, target))

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives any more, in this direction."""
        self._cut[source, target] = None
        self._healthy = False

    def lose(self, source: str, target: str, probability: float) -> None:
        """Each message is lost with this probability; 0 takes the rule back."""
        self._lossy[source, target] = probability
        if not probability:
            del self._lossy[source, target]
        self._look()

    def slow(self, source: str, target: str, factor: float) -> None:
        """Each message takes so many times as long; 1 takes the rule back."""
        self._slow[source, target] = factor
        if factor == 1.0:
            del self._slow[source, target]
        self._look()

    def heal(self, source: str = ANY, target: str = ANY) -> None:
        """Takes back `cut`, `lose` and `slow` for this link; with `*`, for every link that it covers."""
        for rules in (self._cut, self._lossy, self._slow):
            _remove(rules, source, target)
        self._look()

    def refuse(self, source: str, target: str) -> None:
        """A firewall refuses new connections, though the target lives."""
        self._refused[source, target] = None

    def accept(self, source: str = ANY, target: str = ANY) -> None:
        """Takes back `refuse`."""
        _remove(self._refused, source, target)

    def power(self, machine: str, *, on: bool) -> None:
        """A machine without power reaches nobody, and nobody reaches it."""
        if on:
            self._off.pop(machine, None)
        else:
            self._off[machine] = None
        self._look()

    def off(self, machine: str) -> bool:
        """Whether it has no power."""
        return machine in self._off

    def _look(self) -> None:
        self._healthy = not (self._off or self._cut or self._lossy or self._slow)


def _links(source: str, target: str) -> tuple[Link, Link, Link, Link]:
    return (source, target), (source, ANY), (ANY, target), (ANY, ANY)


def between(a: str, b: str, one: str, other: str) -> bool:
    """Whether `a` and `b`, each a name or `*`, are these two machines, in whichever order."""
    return one != other and any(x in (ANY, one) and y in (ANY, other) for x, y in ((a, b), (b, a)))


def _rule(rules: dict[Link, float], source: str, target: str) -> float | None:
    if not rules:
        return None
    return next((rules[link] for link in _links(source, target) if link in rules), None)


def _remove(rules: dict[Link, Any], source: str, target: str) -> None:  # Any: whatever a rule says
    for link in [link for link in rules if source in (ANY, link[0]) and target in (ANY, link[1])]:
        del rules[link]


Item = bytes | None | OSError
"""What arrives at an end of a connection: bytes, None for the end of the stream, or how the connection broke."""


class Stack:
    """TCP on every machine."""

    def __init__(self, kernel: "Kernel", network: Network) -> None:
        self.kernel = kernel
        self.network = network
        self.listeners: dict[tuple[str, int], Listener] = {}
        self._ports = itertools.count(FIRST_PORT)
        self._transports: dict[Transport, None] = {}  # but those that their processes have closed

    def listen(self, process: "Process", port: int) -> "Listener":
        """Raises OSError."""
        address = (process.machine, port or next(self._ports))
        if address in self.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of {process.machine} is in use")
        listener = self.listeners[address] = Listener(self, process, address)
        process.listeners[listener] = None
        return listener

    async def connect(self, process: "Process", host: str, port: int) -> "Transport":
        """An established connection, as yet without a protocol."""
        target = process.machine if host in ("localhost", "127.0.0.1", "::1") else host
        if target not in self.kernel.machines:
            raise socket.gaierror(socket.EAI_NONAME, f"no machine is called {host!r}")
        context = contextvars.copy_context()
        transport = self.transport(process, (process.machine, next(self._ports)), (target, port), context)
        dial = _Dial(self, transport)
        dial.send()
        try:
            await dial.answered
        except BaseException:
            transport.shut(reset=False)
            self.forget(transport)
            raise
        return transport

    def transport(
        self, process: "Process", address: tuple[str, int], target: tuple[str, int], context: contextvars.Context
    ) -> "Transport":
        """One end of a connection."""
        transport = Transport(self, process, address, target, context)
        self._transports[transport] = None
        process.transports[transport] = None
        return transport

    def clean_up(self, process: "Process", *, silently: bool) -> None:
        """The process is gone: its machine closes what it had open, or, `silently`, just forgets it."""
        for listener in tuple(process.listeners):
            listener.close(silently=silently)
        for transport in tuple(process.transports):
            if silently:
                transport.vanish()
            else:
                transport.shut()

    def reset(self, a: str, b: str) -> None:
        """Something between them ends their connections: each machine is told that the other knows of none."""
        for transport in tuple(self._transports):
            if between(a, b, transport.machine, transport.target[0]):
                transport.broken(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def forget(self, transport: "Transport") -> None:
        """Its process has closed it."""
        transport.process.transports.pop(transport, None)
        self._transports.pop(transport, None)

    def later(self, seconds: float, callback: Callable[..., object], *args: object) -> "Handle":
        """In the world's name: a machine's kernel works for a frozen process too."""
        return self.kernel.call_later(seconds, callback, *args, context=self.kernel.world)

    def close(self) -> None:
        """The end of the simulation: nothing is said any more."""
        for transport in self._transports:
            transport.silence()
        self._transports.clear()
        self.listeners.clear()


class _Dial:
    """An attempt to connect: repeated while it gets no answer."""

    __slots__ = ("_pause", "_stack", "_transport", "_tries", "answered")

    def __init__(self, stack: Stack, transport: "Transport") -> None:
        self._stack = stack
        self._transport = transport
        self._tries = 0
        self._pause = FIRST_SYN_PAUSE
        self.answered: asyncio.Future[None] = stack.kernel.create_future()

    @property
    def _given_up(self) -> bool:
        return self.answered.done() or not self._transport.process.alive

    def send(self) -> None:
        if self._given_up:
            return
        transport, network = self._transport, self._stack.network
        delay = network.delay(transport.machine, transport.target[0])
        if delay is None:
            self._again()
        else:
            self._stack.later(delay, self._arrive)

    def _again(self) -> None:
        self._tries += 1
        pause, self._pause = self._pause, 2 * self._pause
        self._stack.later(pause, self.send if self._tries <= SYN_RETRIES else self._time_out)

    def _arrive(self) -> None:
        if self._given_up:
            return
        stack, transport = self._stack, self._transport
        here, there = transport.machine, transport.target[0]
        back = stack.network.delay(there, here)
        if back is None:  # or the target has lost its power meanwhile
            self._again()
            return
        listener = stack.listeners.get(transport.target)
        if listener is None or stack.network.refuses(here, there):
            stack.later(back, self._refuse)
            return
        peer = stack.transport(listener.process, transport.target, transport.address, listener.context)
        transport.peer, peer.peer = peer, transport
        peer.open = True
        peer.horizon = stack.kernel.now + back  # what it says does not overtake its yes
        listener.arrived(peer)
        stack.later(back, self._establish)

    def _establish(self) -> None:
        transport = self._transport
        if transport.gone:
            return
        transport.open = True
        if self._given_up:
            transport.shut(reset=True)
        else:
            self.answered.set_result(None)

    def _refuse(self) -> None:
        if not self._given_up:
            host, port = self._transport.target
            self.answered.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses"))

    def _time_out(self) -> None:
        if not self._given_up:
            host, port = self._transport.target
            self.answered.set_exception(TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer"))


class Listener:
    """A listening socket, as far as asyncio and its users ask for one.

    Connections are accepted for its process from its making on, and wait for `serve`.
    """

    def __init__(self, stack: Stack, process: "Process", address: tuple[str, int]) -> None:
        self.process = process
        self.context = process.context
        self._stack = stack
        self._address = address
        self._factory: Callable[[], asyncio.Protocol] | None = None
        self._reader: Callable[[], object] | None = None
        self._backlog: dict[Transport, None] = {}  # in the order of their arrival

    def getsockname(self) -> tuple[str, int]:
        """Machine and port."""
        return self._address

    def setsockopt(self, *_: object) -> None:
        """Nothing to set."""

    def serve(self, factory: Callable[[], asyncio.Protocol], context: contextvars.Context) -> "Server":
        """From now on its process takes the connections."""
        self._factory, self.context = factory, context
        for transport in self._backlog:
            self._take_soon(transport)
        return Server(self._stack.kernel, self)

    def arrived(self, transport: "Transport") -> None:
        """The machine has accepted one more."""
        self._backlog[transport] = None
        if self._factory is not None:
            self._take_soon(transport)
        else:
            self._wake()

    # What a process asks for that accepts for itself.

    def setblocking(self, _: bool) -> None:
        """It never waits."""

    def listen(self, _: int) -> None:
        """It listens already, and its backlog has no end."""

    def listened_to(self, callback: Callable[..., object], arguments: Sequence[Any]) -> None:
        """`callback` is called in the name of whoever listens."""
        self._reader, self.context = partial(callback, *arguments), contextvars.copy_context()
        self._stack.kernel.call_soon(self._wake, context=self.context)

    def ignored(self) -> bool:
        """Nobody listens any more."""
        reader, self._reader = self._reader, None
        return reader is not None

    def accept(self) -> "tuple[Accepted, tuple[str, int]]":
        """See `socket.accept`."""
        if not self._backlog:
            raise BlockingIOError
        transport = next(iter(self._backlog))
        del self._backlog[transport]
        transport.context = self.context
        return Accepted(transport), transport.target

    def _wake(self) -> None:
        if self._backlog and self._reader is not None:
            self.context.copy().run(self._reader)

    def _take_soon(self, transport: "Transport") -> None:
        transport.context = self.context
        self._stack.kernel.call_soon(self._take, transport, context=self.context)

    def _take(self, transport: "Transport") -> None:
        if transport in self._backlog and self._factory is not None:
            del self._backlog[transport]
            transport.attach(self._factory())

    def close(self, *, silently: bool = False) -> None:
        """Who connects now is refused; who was not taken yet is reset."""
        if self._stack.listeners.get(self._address) is self:
            del self._stack.listeners[self._address]
        waiting, self._backlog = self._backlog, {}
        if not silently:
            for transport in waiting:
                transport.shut(reset=True)


class Accepted:
    """A connection's socket before the loop takes it."""

    def __init__(self, transport: "Transport") -> None:
        self.transport = transport

    def setblocking(self, _: bool) -> None:
        """It never waits."""

    def close(self) -> None:
        """Nobody takes it."""
        self.transport.close()


class Server(asyncio.AbstractServer):
    """What `asyncio.start_server` returns."""

    def __init__(self, kernel: "Kernel", listener: Listener) -> None:
        self._kernel = kernel
        self._listener: Listener | None = listener

    @property
    def sockets(self) -> tuple[Listener, ...]:
        """The listening socket; none after `close`."""
        return (self._listener,) if self._listener else ()

    def get_loop(self) -> "Kernel":
        """The kernel."""
        return self._kernel

    def is_serving(self) -> bool:
        """Not after `close`."""
        return self._listener is not None

    def close(self) -> None:
        """Stops listening; connections stay."""
        listener, self._listener = self._listener, None
        if listener:
            listener.close()

    async def wait_closed(self) -> None:
        """Returns at once."""


class Socket:
    """What a transport shows as its socket: it takes options, and knows what keep-alive means."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self._options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """SO_KEEPALIVE begins to ask the peer, with the TCP_KEEP... options that are set by then."""
        self._options[level, option] = value
        if (level, option) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE) and value:
            self._transport.keep_alive(
                self._options.get((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 7200),
                self._options.get((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 75),
                self._options.get((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 9),
            )

    def getsockname(self) -> tuple[str, int]:
        """Machine and port of this end."""
        return self._transport.address

    def getpeername(self) -> tuple[str, int]:
        """Machine and port of the other."""
        return self._transport.target


class Transport(asyncio.Transport):
    """One end of a connection: what its machine knows of it, and what asyncio calls a transport.

    Attributes:
        open: its machine takes what arrives; who sends to an end that is not is reset.
        gone: its machine knows nothing of it any more.
        horizon: the world's time before which nothing that it sends may arrive.
    """

    def __init__(
        self,
        stack: Stack,
        process: "Process",
        address: tuple[str, int],
        target: tuple[str, int],
        context: contextvars.Context,
    ) -> None:
        super().__init__()
        self.process = process
        self.machine = address[0]
        self.address = address
        self.target = target
        self.context = context
        self.peer: Transport | None = None
        self.open = False
        self.gone = False
        self.horizon = 0.0
        self._stack = stack
        self._protocol: asyncio.Protocol | None = None
        self._inbox: deque[Item] = deque()
        self._outbox: list[Item] = []  # what is being retransmitted, and what waits behind it
        self._reading = True
        self._woken = False
        self._closing = False  # by its own process, or broken
        self._said_eof = False
        self._heard = 0.0
        self._keep_alive: tuple[float, float, int] | None = None
        self._probe: Handle | None = None
        self._socket = Socket(self)

    # -- the machine's part ---------------------------------------------------------------------------------------

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Its process takes it."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._wake()

    def _send(self, item: Item) -> None:
        self._outbox.append(item)
        if len(self._outbox) == 1:
            self._flush(0)

    def _flush(self, retries: int) -> None:
        peer = self.peer
        if self.gone or peer is None or not self._outbox:
            return
        delay = self._stack.network.delay(self.machine, peer.machine)
        if delay is None:
            if retries >= RETRIES:
                self._outbox.clear()
                self._break(TimeoutError(errno.ETIMEDOUT, f"{self.target[0]} does not acknowledge"))
            else:
                pause = min(FIRST_PAUSE * 2**retries, LONGEST_PAUSE)
                self._stack.later(pause, self._flush, retries + 1)
            return
        self.horizon = max(self.horizon, self._stack.kernel.now + delay)
        items, self._outbox = self._outbox, []
        self._stack.later(self.horizon - self._stack.kernel.now, peer.arrive, items)

    def arrive(self, items: list[Item]) -> None:
        """The peer's machine has sent this."""
        if self._stack.network.off(self.machine):
            return
        if not self.open:
            if any(isinstance(item, bytes) for item in items):
                self._reset_peer()
            return
        self._heard = self._stack.kernel.now
        self._inbox.extend(items)
        self._wake()

    def _reset_peer(self) -> None:
        """Says that there is no such connection; this is not repeated where it is lost."""
        peer = self.peer
        delay = self._stack.network.delay(self.machine, self.target[0])
        if peer is not None and delay is not None:
            self.horizon = max(self.horizon, self._stack.kernel.now + delay)
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._stack.later(self.horizon - self._stack.kernel.now, peer.broken, error)

    def broken(self, error: OSError) -> None:
        """The peer's machine knows nothing of this connection."""
        if not self._stack.network.off(self.machine):
            self._outbox.clear()
            self._break(error)

    def _break(self, error: OSError) -> None:
        if self.open:
            self.open, self.gone = False, True
            self._inbox.append(error)
            self._wake()

    def shut(self, *, reset: bool | None = None) -> None:
        """Its process has closed it, or is gone. Bytes that nobody has read make it a reset."""
        if self._probe is not None:
            self._probe.cancel()
        if not self.open:
            return
        self.open = False
        if reset is None:
            reset = any(isinstance(item, bytes) for item in self._inbox)
        self._inbox.clear()
        if reset:
            self.gone = True
            self._outbox.clear()
            self._reset_peer()
        elif not self._said_eof:
            self._said_eof = True
            self._send(None)

    def vanish(self) -> None:
        """Its machine has lost its power."""
        self.open, self.gone = False, True
        self._outbox.clear()

    def silence(self) -> None:
        """The simulation is over."""
        self.open, self.gone, self._closing = False, True, True
        self.peer = self._protocol = self._probe = None
        self._inbox.clear()

    def keep_alive(self, idle: float, interval: float, count: int) -> None:
        """Asks the peer's machine after `idle` silent seconds, and gives up after `count` questions in vain."""
        self._keep_alive = (idle, interval, count)
        self._heard = self._stack.kernel.now
        if self._probe is not None:
            self._probe.cancel()
        self._probe = self._stack.later(idle, self._ask, 0)

    def _ask(self, in_vain: int) -> None:
        if not self.open or self.peer is None or self._keep_alive is None:
            return
        idle, interval, count = self._keep_alive
        stack = self._stack
        if not in_vain:
            due = self._heard + idle - stack.kernel.now
            if due > 0 or self._outbox:  # what is retransmitted is a question too
                self._probe = stack.later(due if due > 0 else idle, self._ask, 0)
                return
        if in_vain >= count:
            self._break(TimeoutError(errno.ETIMEDOUT, f"{self.target[0]} does not answer"))
            return
        network, there = stack.network, self.target[0]
        if network.delay(self.machine, there) is None or network.delay(there, self.machine) is None:
            self._probe = stack.later(interval, self._ask, in_vain + 1)
        elif self.peer.gone:
            self._break(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        else:
            self._heard = stack.kernel.now
            self._probe = stack.later(idle, self._ask, 0)

    # -- the process's part ---------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._inbox and self._protocol is not None and self._reading and not self._woken:
            self._woken = True
            self._stack.kernel.call_soon(self._read, context=self.context)

    def _read(self) -> None:
        self._woken = False
        while self._inbox and self._reading and not self._closing and self._protocol is not None:
            item = self._inbox.popleft()
            if item is None:
                if not self._protocol.eof_received():
                    self.close()
            elif isinstance(item, bytes):
                self._protocol.data_received(item)
            else:
                self._closing = True
                self._lost(item)

    def _lost(self, error: OSError | None) -> None:
        self._stack.forget(self)
        if self._protocol is not None:
            protocol, self._protocol = self._protocol, None
            protocol.connection_lost(error)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hands it to the machine; nothing where the connection is closed."""
        if self._said_eof and not self._closing:
            raise RuntimeError("cannot write after the end of the stream")
        if data and self.open and not self._closing:
            self._send(bytes(data))

    def write_eof(self) -> None:
        """Ends the stream, and goes on reading."""
        if self.open and not self._said_eof:
            self._said_eof = True
            self._send(None)

    def can_write_eof(self) -> bool:
        """It can."""
        return True

    def close(self) -> None:
        """Closes it; the protocol is told soon."""
        self._end(reset=None)

    def abort(self) -> None:
        """Resets it."""
        self._end(reset=True)

    def _end(self, reset: bool | None) -> None:
        if self._closing:
            return
        self._closing = True
        self.shut(reset=reset)
        self._stack.kernel.call_soon(self._lost, None, context=self.context)

    def is_closing(self) -> bool:
        """It is closed, or broken."""
        return self._closing

    def pause_reading(self) -> None:
        """What arrives waits in the machine."""
        self._reading = False

    def resume_reading(self) -> None:
        """What has waited is delivered soon."""
        self._reading = True
        self._wake()

    def is_reading(self) -> bool:
        """Whether it reads."""
        return self._reading and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another protocol from now on."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol."""
        assert self._protocol is not None
        return self._protocol

    def get_write_buffer_size(self) -> int:
        """Nothing waits in the process."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Means nothing: see above."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # Any: as asyncio has it
        """`socket`, `sockname` or `peername`."""
        match name:
            case "socket":
                return self._socket
            case "sockname":
                return self.address
            case "peername":
                return self.target
            case _:
                return default
