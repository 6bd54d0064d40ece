"""Between a simulated worker that keeps its process and its agent: the real `ProcessGroups`, on sockets that are not
there.

What an agent makes of its workers' words is `elastic_agent/workers/process_groups.py` itself. Simulated are its
sockets: the line between a worker and its agent (`AgentEnd`, `WorkerEnd`), and a worker's end of its
process group (`Link`), of which the agent may hold a duplicate.
"""

import contextvars
import dataclasses
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from elastic_run.adapters.client.rounds import Word
from elastic_run.elastic_agent.workers.process_groups import ProcessGroups
from elastic_run.rendezvous.rpc.acceptor import Acceptor

if TYPE_CHECKING:
    from .world import World

CROSSING = (0.00002, 0.0002)
"""Seconds that a word takes from one end of a line to the other."""


class Torn(Protocol):
    """Hears that one direction of a worker's connections is at its end."""

    def __call__(self, link: "Link") -> object:
        """Whoever reads there is told."""
        ...


class Link:
    """One worker's sockets in one process group. They are closed when nobody holds them, or one of the two shuts them
    down.

    Args:
        freed: is told when nothing more comes here: who waits here is free of it.
        told: is told when nothing more comes from here: its peers are.

    Attributes:
        worker: its process has not closed them.
        agent: nor have the duplicates been that its agent has.
    """

    def __init__(self, freed: Torn, told: Torn) -> None:
        self._ends = {socket.SHUT_RD: freed, socket.SHUT_WR: told}
        self.worker = True
        self.agent = False

    def shutdown(self, how: int) -> None:
        """The agent breaks the process group."""
        for direction in tuple(self._ends):
            if how in (direction, socket.SHUT_RDWR):
                self._ends.pop(direction)(self)

    def close(self) -> None:
        """The agent has none any more."""
        self.agent = False
        self._unless_held()

    def fileno(self) -> int:
        """Below 0 when it is closed."""
        return 0 if self.agent else -1

    def left(self) -> None:
        """The worker's process has ended."""
        self.worker = False
        self._unless_held()

    def _unless_held(self) -> None:
        if not (self.worker or self.agent):
            self.shutdown(socket.SHUT_RDWR)


class _Readable:
    """What the loop's `add_reader` takes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._reader: tuple[Callable[..., object], Sequence[Any], contextvars.Context] | None = None

    @property
    def ready(self) -> bool:
        """There is something to read."""
        raise NotImplementedError

    def listened_to(self, callback: Callable[..., object], arguments: Sequence[Any]) -> None:
        """`callback` is called in the name of whoever listens."""
        self._reader = callback, arguments, contextvars.copy_context()
        self.wake()

    def ignored(self) -> bool:
        """Nobody listens any more."""
        reader, self._reader = self._reader, None
        return reader is not None

    def wake(self) -> None:
        """There may be something."""
        if self._reader is not None and self.ready:
            self._world.kernel.call_soon(self._call, self._reader, context=self._reader[2])

    def _call(self, reader: tuple[Callable[..., object], Sequence[Any], contextvars.Context]) -> None:
        if self._reader is reader:
            reader[0](*reader[1])


class _Door(_Readable):
    """Where an agent's workers connect."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._waiting: deque[AgentEnd] = deque()

    @property
    def ready(self) -> bool:
        return bool(self._waiting)

    def knock(self, end: "AgentEnd") -> None:
        """A worker connects."""
        self._waiting.append(end)
        self.wake()

    def setblocking(self, flag: bool) -> None:
        """See `socket.setblocking`."""

    def listen(self, backlog: int) -> None:
        """See `socket.listen`."""

    def accept(self) -> "tuple[AgentEnd, str]":
        """See `socket.accept`."""
        if not self._waiting:
            raise BlockingIOError
        found = self._waiting.popleft()
        self.wake()
        return found, ""

    def close(self) -> None:
        """Who waits is not answered."""
        while self._waiting:
            self._waiting.popleft().close()


class AgentEnd(_Readable):
    """The agent's end of the line to the worker `pid`."""

    def __init__(self, world: "World", pid: int) -> None:
        super().__init__(world)
        self._pid = pid
        self._coming: deque[tuple[bytes, Link | None] | None] = deque()  # None: the end
        self._got = bytearray()
        self._over = False
        self._closed = False
        self.links: deque[Link] = deque()
        self.other: WorkerEnd

    @property
    def ready(self) -> bool:
        return bool(self._got) or self._over

    def send(self, data: bytes | None, link: Link | None = None) -> None:
        """From the worker's end; None: it is closed."""
        self._coming.append(None if data is None else (data, link))
        self._world.after(self._world.chance.uniform(*CROSSING), self._arrive)

    def _arrive(self) -> None:
        part = self._coming.popleft()
        if part is None:
            self._over = True
        else:
            self._got += part[0]
            if part[1] is not None:
                if self._closed:
                    part[1].close()
                else:
                    self.links.append(part[1])
        self.wake()

    # What `ProcessGroups` does with it.

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def getsockopt(self, *which: int) -> bytes:
        """Who is at the other end."""
        return struct.pack("3i", self._pid, os.getuid(), 0)

    def recvmsg(self, size: int, *more: int) -> tuple[bytes, list[Any], int, None]:
        """See `socket.recvmsg`; the links that come with it lie in `links`."""
        if not self.ready:
            raise BlockingIOError
        data = bytes(self._got)
        self._got.clear()
        return data, [], 0, None

    def sendall(self, data: bytes) -> None:
        """See `socket.sendall`."""
        if self._closed or self._over:
            raise BrokenPipeError
        self.other.send(data)

    def close(self) -> None:
        """See `socket.close`."""
        self._closed = True
        while self.links:
            self.links.popleft().close()


class WorkerEnd:
    """The worker's end of that line. It is the socket of its `Rounds`."""

    def __init__(self, world: "World", agent: AgentEnd, heard: Callable[[], object]) -> None:
        self._world = world
        self._agent = agent
        self._heard = heard
        self._coming: deque[bytes] = deque()
        self._with: Link | None = None
        self.got = bytearray()
        agent.other = self

    def send(self, data: bytes) -> None:
        """From the agent's end."""
        self._coming.append(data)
        self._world.after(self._world.chance.uniform(*CROSSING), self._arrive)

    def _arrive(self) -> None:
        self.got += self._coming.popleft()
        self._heard()

    def attach(self, link: Link) -> None:
        """A duplicate goes with the next message."""
        link.agent = True
        self._with = link

    def sendmsg(self, parts: Sequence[bytes], rights: Sequence[Any]) -> int:
        """See `socket.sendmsg`."""
        data = b"".join(parts)
        link, self._with = self._with, None
        self._agent.send(data, link)
        return len(data)

    def sendall(self, data: bytes) -> None:
        """`sendmsg` has taken all."""
        assert not data

    def close(self) -> None:
        """The process has ended."""
        self._agent.send(None)


class SimulatedProcessGroups(ProcessGroups):
    """The real one, listening to simulated workers."""

    def __init__(self, world: "World", owner: str, changed: Callable[[], None], half_open_seconds: float) -> None:
        super().__init__(changed, lambda _: None, half_open_seconds)
        self._world = world
        self._owner = owner
        self._door: _Door | None = None

    def start(self, address: str) -> None:
        """See `ProcessGroups.start`."""
        self._door = _Door(self._world)
        self._acceptor = Acceptor(cast(socket.socket, self._door), self._let_in, self._is_full)
        self._acceptor.start(1024)

    def connect(self, pid: int, heard: Callable[[], object]) -> WorkerEnd:
        """The worker `pid` connects; `heard` is called whenever something has come for it."""
        end = AgentEnd(self._world, pid)
        if self._door is not None:
            self._door.knock(end)
        return WorkerEnd(self._world, end, heard)

    def break_groups(self, pids: Collection[int], round: int) -> None:
        """See `ProcessGroups.break_groups`."""
        self._world.checker.survivors.on_break_groups(self._owner, pids)
        super().break_groups(pids, round)

    def abandon(self) -> None:
        """The agent's process is gone: its system closes what it had open."""
        if self._door is not None:
            self._door.close()
        for stayer in self._stayers.values():
            end = cast(AgentEnd, stayer.connection)
            end.close()
            for held in stayer.held:
                cast(Link, held).close()

    def _take(self, stayer: Any, word: Word) -> None:  # Any: it is private to `ProcessGroups`
        if word.kind == "hold":
            end = cast(AgentEnd, stayer.connection)
            stayer.held += [end.links.popleft() for _ in range(word.count)]
            word = dataclasses.replace(word, count=0)  # no descriptors came with it
        super()._take(stayer, word)
