"""Several servers for one worker's end: threads of this process, which share what rows and marks there are.

A server answers only for slots whose primary it is by the table that it has, and only who goes by the same. So what a
worker meets is what real servers do: they are lost, silent, full, moved, behind. How they keep each other's rows is
none of this: whoever becomes primary has them.
"""

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from elastic_run.adapters.servers import frames
from elastic_run.adapters.servers.client import ServersConnection
from elastic_run.adapters.servers.frames import Asking, Replying
from elastic_run.adapters.servers.job_servers import JobServers
from elastic_run.adapters.servers.requests import (
    OpenTable,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    Reply,
    Request,
)
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.step_clock import StepClock, start_clock
from elastic_run.adapters.servers.table_source import TableSource
from elastic_run.master.servers.slot_table import SLOTS, RunningServer, ServerPlace, SlotTable
from elastic_run.rendezvous.identity.servers import ServersTls

ENOUGH = 20.0
"""Seconds that no test takes."""


def slot_of(id_: int) -> int:
    """The first bits of its hash."""
    word = id_ % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return (word ^ (word >> 31)) >> 54


def deal_slots(*numbers: int) -> tuple[int, ...]:
    """The slots in turn, each to one of these."""
    return tuple(numbers[slot % len(numbers)] for slot in range(SLOTS))


@dataclass
class Rows:
    """What there is, wherever it lies: rows by table and id, and by slot and shard its lease and its mark."""

    values: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    marks: dict[tuple[int, str, int], tuple[int, int]] = field(
        default_factory=dict[tuple[int, str, int], tuple[int, int]]
    )
    pushes: list[PushSource] = field(default_factory=list[PushSource])

    def push(self, source: PushSource, slots: set[int], gradients: dict[str, dict[int, float]]) -> str:
        """Applies what is new of it; why it is refused."""
        shard = source.dataset, source.shard_index
        held = {slot: self.marks.get((slot, *shard), (0, 0)) for slot in slots}
        for lease, mark in held.values():
            if source.lease < lease or mark < source.begin or source.begin < mark < source.end:
                return f"records {source.begin} to {source.end}, and {mark} are applied under lease {lease}"
        for table, of_ids in gradients.items():
            for id_, gradient in of_ids.items():
                if held[slot_of(id_)][1] == source.begin:
                    self.values[table, id_] = self.values.get((table, id_), 0.0) - gradient
        for slot, (_, mark) in held.items():
            self.marks[slot, *shard] = source.lease, max(mark, source.end)
        self.pushes.append(source)
        return ""

    def read_marks(self, request: ReadMarks, slots: set[int]) -> set[int]:
        found: set[int] = set()
        for slot in slots:
            lease, mark = self.marks.get((slot, request.dataset, request.shard_index), (0, 0))
            self.marks[slot, request.dataset, request.shard_index] = max(lease, request.lease), mark
            found.add(mark)
        return found


class DoubleServer:
    """One server.

    Attributes:
        table: the slot table that it goes by.
        asked: requests that it has answered.
        open: while it is cleared, nothing is answered.
        full: it refuses pushes that have ids.
        dies: asked with each request before it is applied ("before") and before it is answered ("after"): whether the
            server goes then.
        gone: it has.
    """

    def __init__(self, number: int, rows: Rows, lock: threading.RLock, tls: ServersTls | None = None) -> None:
        self.name = f"elastic-run-test-{secrets.token_hex(8)}"
        self._tls = tls.make_server() if tls else None
        self._listening = socket.create_server(("127.0.0.1", 0)) if tls else socket.socket(socket.AF_UNIX)
        if not tls:
            self._listening.bind("\0" + self.name)
            self._listening.listen()
        remote = f"127.0.0.1:{self._listening.getsockname()[1]}" if tls else ""
        self.place = RunningServer(number, self.name, "there" if tls else "here", f"@{self.name}", remote)
        self._rows, self._lock = rows, lock
        self.table = SlotTable()
        self.asked: list[Request] = []
        self.open = threading.Event()
        self.open.set()
        self.full = False
        self.gone = False
        self.dies: Callable[[Request, str], bool] = lambda request, when: False
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                self._sockets.append(taken)
                thread = threading.Thread(target=self._serve, args=(taken,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), plain:
            taken = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
            self._sockets.append(taken)
            with taken, taken.makefile("rwb") as stream:
                while prefix := stream.read(frames.PREFIX.size):
                    head = frames.read_head(Asking, stream.read(frames.length_of_head(prefix)))
                    arrays = frames.make_arrays(head.arrays)
                    for each in frames.buffers_of(arrays):
                        if cast(Any, stream).readinto(each) < len(each):  # Any: typeshed's stream has no such method
                            return
                    self.open.wait(ENOUGH)
                    with self._lock:
                        if self.gone or self.dies(head.request, "before"):
                            self.leave()
                            return
                        reply, found = self._answer(head.request, arrays)
                        if self.dies(head.request, "after"):
                            self.leave()
                            return
                    for part in frames.pack(Replying(reply, frames.shapes_of(found)), found):
                        stream.write(part)
                    stream.flush()

    def _answer(self, request: Any, arrays: list[Any]) -> tuple[Reply, list[Any]]:
        """Any: a request, and arrays."""
        if request.version != self.table.version:
            return Reply("moved", version=self.table.version), []
        self.asked.append(request)
        mine = self.table.index_of(self.name)
        slots = {slot for slot, holder in enumerate(self.table.primary) if holder == mine}
        match request:
            case OpenTable():
                return Reply(), []
            case ReadMarks():
                return Reply(marks=tuple(sorted(self._rows.read_marks(request, slots)))), []
            case PullRows(tables):
                self._check_slots(slots, arrays)
                return Reply(), [
                    np.array([[self._rows.values.get((table, id_), 0.0)] for id_ in ids.tolist()], np.float32).reshape(
                        -1, 1
                    )
                    for table, ids in zip(tables, arrays, strict=True)
                ]
            case PushGradients(tables, source):
                self._check_slots(slots, arrays[::2])
                if self.full and any(len(ids) for ids in arrays):
                    return Reply("full", "no room"), []
                gradients = {
                    table: dict(zip(ids.tolist(), rows[:, 0].tolist(), strict=True))
                    for table, ids, rows in zip(tables, arrays[::2], arrays[1::2], strict=True)
                }
                refused = self._rows.push(source, slots, gradients)
                return Reply("records", refused) if refused else Reply(), []
            case _:
                return Reply("misused", f"a request of {request.code}"), []

    def _check_slots(self, slots: set[int], arrays: list[Any]) -> None:
        assert all(slot_of(id_) in slots for ids in arrays for id_ in ids.tolist())

    def leave(self) -> None:
        """Ends, as a process does."""
        self.gone = True
        for each in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def hang_up(self) -> None:
        """Loses the connections, and goes on."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self.open.set()
        self.leave()
        for thread in self._threads:
            thread.join(ENOUGH)
        assert not any(thread.is_alive() for thread in self._threads)


class KnownServers(Protocol):
    """What a worker's agent knows."""

    known: SlotTable
    worker_tls: ServersTls | None
    node: str
    waits: list[tuple[tuple[int, ...], float]]


class DoubleSource(TableSource):
    """Stands for the agent: it has answered as soon as it has a newer table."""

    def __init__(self, servers: KnownServers) -> None:
        self._servers = servers
        self._ends = socket.socketpair()
        self._version = 0
        self.asked = False

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def ask_agent(self, version: int, awaits: Sequence[int], seconds: float) -> None:
        self._version, self.asked = version, True
        self._servers.waits.append((tuple(awaits), seconds))
        self.look()

    def look(self) -> None:
        """The agent has perhaps something to say."""
        if self.asked and self._servers.known.version > self._version:
            self._ends[1].send(b"x")
            self._version = 2**31

    def read_answer(self) -> JobServers:
        self._ends[0].settimeout(ENOUGH)
        self._ends[0].recv(1)
        self.asked = False
        return JobServers(self._servers.known, self._servers.node, self._servers.worker_tls)

    def close(self) -> None:
        for each in self._ends:
            each.close()


class ManyServers:
    """Servers, and the agent that knows of them.

    Attributes:
        rows: what there is.
        servers: all that ever were, by number.
        known: the slot table that the agent has.
        worker_tls: what it gives to workers.
        waits: for which servers workers said that they wait, and for how many seconds.
        ends: what is to be closed.
    """

    node = "here"

    def __init__(self) -> None:
        self.rows = Rows()
        self.lock = threading.RLock()
        self.servers: list[DoubleServer] = []
        self.known = SlotTable()
        self.worker_tls: ServersTls | None = None
        self.sources: list[DoubleSource] = []
        self.waits: list[tuple[tuple[int, ...], float]] = []
        self.ends = contextlib.ExitStack()

    def add(self, tls: ServersTls | None = None) -> DoubleServer:
        made = DoubleServer(len(self.servers), self.rows, self.lock, tls)
        self.servers.append(made)
        return made

    def table(self, primary: tuple[int, ...]) -> SlotTable:
        """The next, by which these servers, by their number, are the primaries."""
        with self.lock:
            version = max(self.known.version, *(each.table.version for each in self.servers)) + 1
            there = [each.place for each in self.servers if not each.gone]
            index = {place.number: at for at, place in enumerate(there)}
            places = tuple(ServerPlace(place.number, place.node) for place in there)
            return SlotTable(version, places, tuple(there), tuple(index[number] for number in primary))

    def tell_servers(self, table: SlotTable) -> None:
        with self.lock:
            for each in self.servers:
                each.table = table

    def tell_agent(self, table: SlotTable) -> None:
        with self.lock:
            self.known = table
            for each in self.sources:
                each.look()

    def move(self, *numbers: int) -> None:
        """Deals the slots to these servers."""
        table = self.table(deal_slots(*numbers))
        self.tell_servers(table)
        self.tell_agent(table)

    def client(self, start_clock: Callable[[int], StepClock] = start_clock) -> ServersClient:
        """A worker's end, until the servers end."""
        connection = ServersConnection(self.source())
        self.ends.callback(connection.close)
        return ServersClient(connection, start_clock)

    def source(self) -> DoubleSource:
        made = DoubleSource(self)
        self.sources.append(made)
        return made


@contextlib.contextmanager
def many_servers(count: int) -> Generator[ManyServers]:
    """So many, with the slots dealt to them in turn."""
    made = ManyServers()
    try:
        for _ in range(count):
            made.add()
        made.move(*range(count))
        yield made
    finally:
        made.ends.close()
        for each in made.servers:
            each.join()
