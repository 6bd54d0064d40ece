"""A client's end of the simulated etcd: its connections, what it asks over them, and the watches that it reads.

It stands where grpc stands in the product: `EtcdStore(Client(...), now=...)`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from elastic_run.rendezvous.store.etcd.connections import TOO_LATE, AttemptFailed, Endpoints, Metadata, judge

from .etcd_cluster import BACKOFF, Call, Cluster, Member, Network, Watch

CONNECT_TIMEOUT = 2.0
"""Seconds of one attempt to connect."""

PING_AFTER, PING_TIMEOUT = 5.5, 2.0
"""Seconds: how long a connection may be silent, and then unanswered, before it counts as broken."""


class Stream:
    """The client's end of a watch."""

    def __init__(self, endpoint: "Endpoint", leader: bool) -> None:
        self.endpoint = endpoint
        self.address = endpoint.address
        self.life = endpoint.life
        self.ended = False
        self.watch: Watch | None = None
        self._leader = leader
        self._came: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: AttemptFailed | None = None

    async def send(self, request: Any) -> None:
        """Raises AttemptFailed."""
        if self._failure is not None:
            raise self._failure
        cluster = self.endpoint.client.cluster
        delay = cluster.network.delay(self.endpoint.client.machine, self.endpoint.member.name)
        if delay is None:
            self.endpoint.suspect()
        else:
            cluster.after(delay, cluster.open_watch, self, request.create_request, self._leader)

    async def receive(self, seconds: float | None = None) -> Any:
        """The next message. Raises AttemptFailed."""
        while not self._came:
            if self._failure is not None:
                raise self._failure
            client = self.endpoint.client
            self._waiter = waiter = client.loop.create_future()
            if seconds is not None:
                words = f"{self.address}: no answer within {seconds:.1f} s"
                client.cluster.after(seconds, self._give_up, waiter, AttemptFailed("maybe", words))
            try:
                late = await waiter
            finally:
                self._waiter = None
            if late is not None:
                raise late
        return self._came.popleft()

    def _give_up(self, waiter: "asyncio.Future[Any]", failure: AttemptFailed) -> None:
        if not waiter.done():
            waiter.set_result(failure)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self, message: Any) -> None:
        """Something arrives: a response, or how it ends."""
        if self.ended or self._failure is not None:
            return
        if isinstance(message, AttemptFailed):
            self.fail(message)
        else:
            self._came.append(message)
            self._wake()

    def fail(self, failure: AttemptFailed) -> None:
        """Nothing comes any more."""
        if self._failure is None:
            self._failure = failure
            self._forget()
            self._wake()

    def end(self) -> None:
        """The client wants no more; may be called again."""
        self.ended = True
        self.fail(AttemptFailed("maybe", f"{self.address}: the connection was closed"))
        self._forget()

    def _forget(self) -> None:
        self.endpoint.streams.pop(self, None)
        if self.watch is not None:
            self.watch.member.watches.pop(self.watch, None)


class Endpoint:
    """One member as one client sees it: connecting, connected, or refused."""

    def __init__(self, client: "Client", member: Member) -> None:
        self.client = client
        self.member = member
        self.address = f"{member.name}:2379"
        self.ready = False
        self.refused = ""
        self.life = 0  # the member's, that it is connected to
        self.attempt = 0  # counts connections; what belongs to an earlier one does nothing
        self.streams: dict[Stream, None] = {}
        self._calls: dict[Call, None] = {}
        self._opened = False
        self._pinging = False
        self._suspected = False
        self._changed = asyncio.Event()

    # Connecting

    def open(self) -> None:
        """Begins to connect, and stays connected from now on."""
        if not self._opened and not self.client.closed:
            self._opened = True
            self.connect(self.attempt)

    def connect(self, attempt: int) -> None:
        """One attempt."""
        if attempt != self.attempt or self.client.closed:
            return
        self.attempt += 1
        self._pinging = self._suspected = False
        self._set(ready=False, refused="")
        self._knock(self.attempt, 2)

    def _knock(self, attempt: int, times: int) -> None:
        if attempt != self.attempt:
            return
        client, member = self.client, self.member
        cluster, network = client.cluster, client.cluster.network
        there, back = network.delay(client.machine, member.name), network.delay(member.name, client.machine)
        if there is None or back is None:
            if times > 1:  # the first packet is sent again after a second
                cluster.after(CONNECT_TIMEOUT / 2, self._knock, attempt, times - 1)
            else:
                cluster.after(CONNECT_TIMEOUT / 2, self._not_connected, attempt)
        elif not member.up or network.refuses(client.machine, member.name):
            cluster.after(there + back, self._not_connected, attempt)
        elif member.frozen:  # its kernel accepts, and nobody greets
            cluster.after(CONNECT_TIMEOUT, self._not_connected, attempt)
        else:
            cluster.after(there + 2 * back, self._connected, attempt, member.life)

    def _connected(self, attempt: int, life: int) -> None:
        if attempt != self.attempt or self.client.closed:
            return
        if life != self.member.life:
            self._not_connected(attempt)
            return
        self.life = life
        self.member.links[self] = None
        self._set(ready=True, refused="")

    def _not_connected(self, attempt: int) -> None:
        if attempt != self.attempt or self.client.is_gone():
            return
        self._set(ready=False, refused=f"{self.address}: cannot connect")
        if not self.member.up:
            self.member.wanted[self] = None  # nothing changes before it starts
        else:
            self.client.cluster.after(self.client.cluster.chance.uniform(*BACKOFF), self.connect, attempt)

    def break_off(self, attempt: int, words: str) -> None:
        """The connection is gone, and the client knows. It connects again."""
        if attempt != self.attempt or not self.ready:
            return
        self.member.links.pop(self, None)
        self._fail_all(words)
        self.connect(attempt)

    def _fail_all(self, words: str) -> None:
        calls, self._calls = self._calls, {}
        for call in calls:
            if not call.future.done():
                call.future.set_result(judge(self.address, "UNAVAILABLE", words))
        for stream in tuple(self.streams):
            stream.fail(judge(self.address, "UNAVAILABLE", words))

    def _set(self, *, ready: bool, refused: str) -> None:
        self.ready, self.refused = ready, refused
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self.client.notify()

    async def connected(self, seconds: float) -> None:
        """Waits until it is connected or refuses to be. Raises AttemptFailed after `seconds`."""
        if self.ready or self.refused:
            return
        try:
            async with asyncio.timeout(seconds):
                while not self.ready and not self.refused:
                    await self._changed.wait()
        except TimeoutError:
            raise AttemptFailed("unsent", f"{self.address}: no connection within {seconds:.1f} s") from None

    # A silent wire

    def suspect(self) -> None:
        """Something that was sent is not acknowledged: the kernel gives such a connection up."""
        if self.ready and not self._suspected:
            self._suspected = True
            self.client.cluster.after(PING_TIMEOUT, self._give_up_if_silent, self.attempt, False)

    def _ping(self, attempt: int) -> None:
        """While watches are open, silence is looked into."""
        if attempt != self.attempt:
            return
        self._pinging = False
        if not self.ready or not self.streams or self.client.is_gone():
            return
        self.client.cluster.nudge()
        if self._answers(frozen_too=True):
            self._ping_later()
        else:
            self.client.cluster.after(PING_TIMEOUT, self._give_up_if_silent, attempt, True)

    def _ping_later(self) -> None:
        if not self._pinging:
            self._pinging = True
            self.client.cluster.after(PING_AFTER, self._ping, self.attempt)

    def _answers(self, *, frozen_too: bool) -> bool:
        reaches, machine, name = self.client.cluster.network.reaches, self.client.machine, self.member.name
        if not reaches(machine, name) or not reaches(name, machine):
            return False
        return not (frozen_too and self.member.frozen) and self.life == self.member.life

    def _give_up_if_silent(self, attempt: int, ping: bool) -> None:
        if attempt != self.attempt or not self.ready:
            return
        self._suspected = self._suspected and ping
        if self._answers(frozen_too=ping):
            if ping and self.streams:
                self._ping_later()
        else:
            self.break_off(attempt, "keepalive watchdog timeout" if ping else "Connection timed out")

    # Asking

    async def call(
        self, path: str, request: Any, answer: type[Any], seconds: float, until: float, metadata: Metadata
    ) -> Any:
        """One attempt. Raises AttemptFailed."""
        client = self.client
        left = min(seconds, until - client.loop.time())
        if not self.ready:
            await self.connected(left)
            left = min(seconds, until - client.loop.time())
        if left < TOO_LATE:
            raise AttemptFailed("unsent", f"{self.address}: connected too late")
        if client.closed:
            raise AttemptFailed("unsent", f"{self.address}: the connection was closed")
        if not self.ready:
            raise judge(self.address, "UNAVAILABLE", "failed to connect to all addresses; Connection refused")
        cluster = client.cluster
        call = Call(self, path, request, cluster.world.now + left, bool(metadata))
        delay = cluster.network.delay(client.machine, self.member.name)
        if delay is None:
            self.suspect()
            call.lost = True
            cluster.after(left, cluster.expire, call)
        else:
            cluster.after(delay, cluster.arrive, call)
        self._calls[call] = None
        try:
            said = await call.future
        finally:
            self._calls.pop(call, None)
        if isinstance(said, AttemptFailed):
            raise said
        return said

    def stream(self, path: str, answer: type[Any], metadata: Metadata) -> Stream:
        """Begins a watch."""
        if self.client.closed or not self._opened:
            raise AttemptFailed("unsent", f"{self.address}: the connection was closed")
        stream = Stream(self, bool(metadata))
        if self.ready:
            self.streams[stream] = None
            self._ping_later()
        else:
            stream.fail(judge(self.address, "UNAVAILABLE", "failed to connect to all addresses; Connection refused"))
        return stream

    def drop_streams(self) -> None:
        """Ends every stream, so that its owner opens it elsewhere."""
        for stream in tuple(self.streams):
            stream.end()

    def shut(self) -> None:
        """The client closes it, or its process is gone."""
        self.attempt += 1
        self.member.links.pop(self, None)
        self.member.wanted.pop(self, None)
        self.ready, self.refused = False, f"{self.address}: closed"
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._fail_all("Socket closed")


class Client(Endpoints):
    """What one node's store talks to: `EtcdStore(Client(...), now=...)`. Whose turn it is, the real thing decides.

    Args:
        cluster: that is asked.
        network: between the machines.
        machine: where the client is.
        owner: who it is, for observers.
    """

    def __init__(self, cluster: Cluster, network: Network, machine: str, owner: str = "") -> None:
        super().__init__(["made.elsewhere:1"], None)
        self._has_threads = True  # grpc is not here: no real thread has to be tried, and waited for
        self.cluster = cluster
        self.network = network
        self.machine = machine
        self.owner = owner or machine
        self.loop = asyncio.get_running_loop()
        self.closed = False
        current: Callable[[], Any] | None = getattr(self.loop, "current", None)  # an ordinary loop has no processes
        self._process = current() if current is not None else None
        self.all: Any = tuple(Endpoint(self, member) for member in cluster.members.values())  # Any: not grpc's
        self._turn = cluster.chance.randrange(len(self.all))

    def notify(self) -> None:
        """Some connection has changed."""
        self._notify()

    def is_gone(self) -> bool:
        """It was closed, or its process is dead, and its machine closes its connections now."""
        if not self.closed and self._process is not None and not self._process.alive:
            self.die()
        return self.closed

    def die(self) -> None:
        """Its process is gone, and its machine closes its connections; may be called again."""
        self.closed = True
        for endpoint in self.all:
            endpoint.shut()

    async def close(self) -> None:
        """Closes every connection."""
        if not self.closed:
            self.die()
            self._notify()
