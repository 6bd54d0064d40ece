"""A worker's end: what it asks of the servers goes to each that answers for some of it, until all have answered.

Servers are lost and slots move: then a newer slot table says who answers now, and the same is asked again, split by
that. To ask again does no harm, because a server knows by its marks which pushes it has applied.
"""

import math
import select
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from ...master.servers.slot_table import RunningServer, SlotTable
from ...rendezvous.base.frozen import replace
from ...rendezvous.identity import SERVER_NAME
from ...rendezvous.wire.values import Malformed
from ..client.channel import say_line
from . import frames, kernels
from .errors import PushRefused, ServerFull, ServerGone, TableMisused
from .frames import Asking
from .job_servers import JobServers
from .line import ServerLine
from .requests import ApplyStep, OpenTable, ReadMarks, ReadStream, Reply, Request
from .routing import Routes
from .server_events import Array, Arrays
from .table_source import TableSource

SECONDS = 60.0
"""That servers may take until one more has answered, or a newer table is there."""

START_SECONDS = 300.0
"""That the job's servers may take to start, and each of them to its first answer: their loops are compiled once."""

RESTORE_SECONDS = 600.0
"""The same where they begin with the rows of a checkpoint, which they read first."""

QUIET = 20.0
"""Seconds that a first answer may take before a person is told what is waited for."""

SILENCE = 0.25
"""Seconds without an answer after which the agent is asked for a newer table."""

BEHIND = 0.0015
"""Seconds until a server that has an older table is asked again."""

AGAIN = 0.1
"""Seconds until a server is connected to again."""

Split = Callable[[Routes], Sequence[tuple[Request, Arrays]]]
"""Gives what each of `Routes.servers` is asked."""


def ask_each(question: OpenTable | ReadMarks | ReadStream | ApplyStep) -> Split:
    """The same of all servers, under whatever version they have."""
    return lambda routes: [(replace(question, version=routes.table.version), ())] * len(routes.servers)


Answer = tuple[Reply, list[Array]]


class AskedServer:
    """What one server is asked, and what came of it.

    Attributes:
        server: which one.
        parts: the request, as it goes over the connection.
        due: when it is to be sent (`time.monotonic`); None: it was.
        why: what came in between last, in words.
        answer: its answer, once it is there.
    """

    def __init__(self, server: RunningServer, parts: list[bytes | memoryview]) -> None:
        self.server = server
        self.parts = parts
        self.due: float | None = 0.0
        self.why = "it is silent"
        self.answer: Answer | None = None


class Exchange:
    """One question to all servers.

    Args:
        split: what each is asked; called again for each newer table.
    """

    def __init__(self, split: Split) -> None:
        self._split = split
        self.routes: Routes | None = None
        self.asked: list[AskedServer] = []

    def split_anew(self, routes: Routes) -> None:
        """Forgets the answers so far. Raises TableMisused where it is too much at a time."""
        asked = self._split(routes)
        self.routes = routes
        self.asked = [
            AskedServer(server, frames.pack(Asking(request, frames.shapes_of(arrays)), arrays))
            for server, (request, arrays) in zip(routes.servers, asked, strict=True)
        ]

    @property
    def answers(self) -> list[Answer]:
        """Those that are there, in the order of `Routes.servers`."""
        return [each.answer for each in self.asked if each.answer]

    @property
    def is_whole(self) -> bool:
        """All have answered."""
        return self.routes is not None and all(each.answer for each in self.asked)


class ServersConnection:
    """To all servers of the job. One thread at a time.

    Args:
        source: of slot tables.
        seconds: see `SECONDS`.

    Attributes:
        repeated: exchanges that were begun again, because a newer table was there.
    """

    def __init__(self, source: TableSource, seconds: float = SECONDS) -> None:
        self._source = source
        self._seconds = seconds
        self._lines: dict[str, ServerLine] = {}  # by incarnation
        self._sent: dict[str, deque[AskedServer]] = {}  # by incarnation, what is to be answered, in this order
        self._routes: Routes | None = None
        self._jobs: JobServers | None = None
        self._tls: ssl.SSLContext | None = None
        self._behind = False  # a newer table is wanted
        self._heard: set[str] = set()  # incarnations that have ever answered
        self._told_at = math.inf  # when a person is told that servers begin
        self.repeated = 0

    def ask_servers(self, split: Split) -> list[Answer]:
        """Asks, and waits: see `begin` and `finish`."""
        return self.finish(self.begin(split))

    def begin(self, split: Split) -> Exchange:
        """Asks, and does not wait. Raises ServerGone where the servers have not started in time."""
        exchange = Exchange(split)
        exchange.split_anew(self._routes or self._await_table())
        self._send_due(exchange)
        return exchange

    def finish(self, exchange: Exchange) -> list[Answer]:
        """What each server has answered, in the order of `exchange.routes.servers`.

        Raises TableMisused, ServerFull, PushRefused when all have answered and one of them so; ServerGone; AgentGone.
        """
        moved, answered = time.monotonic(), len(exchange.answers)
        self._told_at = moved + QUIET
        while not exchange.is_whole:
            if exchange.routes is not self._routes and self._routes:
                exchange.split_anew(self._routes)
                self.repeated += 1
                moved, answered = time.monotonic(), 0
            self._send_due(exchange)
            seconds = self._patience(exchange)
            self._wait_turn(exchange, moved, seconds)
            if len(exchange.answers) > answered:
                moved, answered = time.monotonic(), len(exchange.answers)
            elif time.monotonic() > moved + seconds:
                raise ServerGone(self._describe_missing(exchange, seconds))
        self._behind = False
        for refused, error in (("records", PushRefused), ("misused", TableMisused), ("full", ServerFull)):
            for each in exchange.asked:
                if each.answer and each.answer[0].refused == refused:
                    raise error(each.answer[0].text)
        return exchange.answers

    def close(self) -> None:
        """Hangs up."""
        for incarnation in list(self._lines):
            self._hang_up(incarnation, "it was hung up", 0.0)
        self._source.close()

    def _send_due(self, exchange: Exchange) -> None:
        now = time.monotonic()
        for each in exchange.asked:
            if each.answer or each.due is None or each.due > now:
                continue
            incarnation = each.server.incarnation
            try:
                if incarnation not in self._lines:
                    self._lines[incarnation] = self._connect(each.server)
                    self._sent[incarnation] = deque()
                line = self._lines[incarnation]
                line.send_request(each.parts)
                self._sent[incarnation].append(each)
                each.due = None
                self._take_answers(incarnation, line)
            except (OSError, Malformed) as error:
                each.due, each.why, self._behind = now + AGAIN, f"{error}", True
                self._hang_up(incarnation, f"{error}", now + AGAIN)

    def _connect(self, server: RunningServer) -> ServerLine:
        assert self._jobs is not None
        if server.node == self._jobs.node or not server.remote:
            try:
                return ServerLine(server.local)
            except OSError:
                if not server.remote:  # else this process may be in a network namespace of its own
                    raise
        return ServerLine("", server.remote, self._tls, SERVER_NAME)

    def _patience(self, exchange: Exchange) -> float:
        """Seconds for the next answer: more while a server begins. Says what is waited for, once."""
        begin = [each for each in exchange.asked if not each.answer and each.server.incarnation not in self._heard]
        if not begin or exchange.routes is None:
            return self._seconds
        for each in begin:
            each.why = describe_start(exchange.routes.table) if each.due is None else each.why
        if time.monotonic() >= self._told_at:
            self._told_at = math.inf
            words = ", ".join(f"server {each.server.number} on node {each.server.node}" for each in begin)
            say_line(f"this worker waits for {words}: {begin[0].why}")
        return max(self._seconds, start_seconds(exchange.routes.table))

    def _wait_turn(self, exchange: Exchange, moved: float, seconds: float) -> None:
        """Waits for whatever comes first, and takes it."""
        assert self._routes is not None
        now = time.monotonic()
        waits = [now + SILENCE, moved + seconds]
        waits += [each.due for each in exchange.asked if each.due is not None and not each.answer]
        if self._behind or now >= moved + SILENCE:
            awaits = sorted({each.server.number for each in exchange.asked if not each.answer})
            self._source.ask_agent(self._routes.table.version, awaits, now - moved)
        poll = select.poll()
        by_number = {line.fileno(): incarnation for incarnation, line in self._lines.items() if self._sent[incarnation]}
        for number, incarnation in by_number.items():
            poll.register(number, self._lines[incarnation].events)
        if self._source.asked:
            poll.register(self._source.fileno(), select.POLLIN)
        for number, _ in poll.poll(max(0.0, min(waits) - now) * 1000):
            if not (incarnation := by_number.get(number)):
                self._take_table(self._source.read_answer())
            elif line := self._lines.get(incarnation):  # else the table just now had it hung up
                try:
                    self._take_answers(incarnation, line)
                except (OSError, Malformed) as error:
                    self._behind = True
                    self._hang_up(incarnation, f"{error}", time.monotonic() + AGAIN)

    def _take_answers(self, incarnation: str, line: ServerLine) -> None:
        """Raises OSError, Malformed."""
        for reply, arrays in line.move_bytes():
            if not self._sent[incarnation]:
                raise Malformed("an answer to nothing")
            each = self._sent[incarnation].popleft()
            self._heard.add(incarnation)
            if reply.refused != "moved":
                each.answer = reply, arrays
                continue
            each.why = f"it has version {reply.version} of the slot table"
            each.due = time.monotonic() + BEHIND
            if self._routes is None or reply.version >= self._routes.table.version:
                self._behind = True

    def _hang_up(self, incarnation: str, why: str, due: float) -> None:
        if line := self._lines.pop(incarnation, None):
            line.close()
        for each in self._sent.pop(incarnation, ()):
            each.due, each.why = due, why

    def _take_table(self, jobs: JobServers) -> None:
        if self._jobs is None or self._jobs.tls != jobs.tls:  # renewed, and the table may be the same
            self._tls = jobs.tls.make_client() if jobs.tls else None
        self._jobs = jobs
        if self._routes is not None and jobs.table.version <= self._routes.table.version:
            return
        if not jobs.table.serves:
            return
        self._routes, self._behind = Routes(jobs.table), False
        there = {server.incarnation for server in jobs.table.servers}
        for incarnation, sent in list(self._sent.items()):
            if sent or incarnation not in there:  # it is silent, or would answer by the table before
                self._hang_up(incarnation, "a newer table is there", 0.0)

    def _await_table(self) -> Routes:
        """The first. Raises ServerGone, TableMisused, AgentGone."""
        begun = time.monotonic()
        while self._routes is None:
            table = self._jobs.table if self._jobs else SlotTable()
            if time.monotonic() > begun + (seconds := start_seconds(table)):
                raise ServerGone(
                    f"the job's servers have not started in {seconds:g} s: {len(table.servers)} of "
                    f"{len(table.places)} run"
                )
            self._source.ask_agent(0, (), time.monotonic() - begun)
            self._take_table(self._source.read_answer())
        return self._routes

    def _describe_missing(self, exchange: Exchange, seconds: float) -> str:
        words = ", ".join(
            f"server {each.server.number} on node {each.server.node} has not answered ({each.why})"
            for each in exchange.asked
            if not each.answer
        )
        version = exchange.routes.table.version if exchange.routes else 0
        return f"{words}; and in {seconds:g} s nothing newer than version {version} of the slot table has come"


def start_seconds(table: SlotTable) -> float:
    """That servers may take to start under that table."""
    return RESTORE_SECONDS if table.restore else START_SECONDS


def describe_start(table: SlotTable) -> str:
    """What a server may be at that has never answered."""
    return f"it reads checkpoint {table.restore}" if table.restore else "it has not given its first answer yet"


def merge(ids: Array) -> tuple[Array, Array]:
    """Each of these int64 ids once, in the order in which they come, and where in that each of `ids` is."""
    length = 64
    while length < 2 * len(ids):
        length *= 2
    distinct, inverse = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    count = kernels.merge_ids(ids, np.empty(length, np.int64), np.zeros(length, np.int64), distinct, inverse)
    return distinct[:count], inverse
