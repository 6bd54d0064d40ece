"""A ledger that leases shards of records, and workers that train on them: what the product's clients do, in short.

A record has a few ids. For each the table `count` gets -1 as its gradient, under SGD with a rate of 1: a row's value is
how often records with its id were applied. The gradients of the table `model` are some numbers, under an optimizer
with state, so that two holders agree in each bit only where they applied the same, in the same order.
"""

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from elastic_run.adapters.servers import kernels
from elastic_run.adapters.servers.frames import Asking, Replying, shapes_of
from elastic_run.adapters.servers.requests import (
    OpenTable,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    Reply,
    WorkerRequest,
)
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.master.servers.slot_table import RunningServer, SlotTable

from .lines import Line, LineNetwork, LineProcess
from .server_process import Array, Message, ServerProcess, read_message, write_message
from .slot_store import SlotAgent

DATASET = "clicks"

COUNT = TableSpec("count", 1, SGD(1.0), Zeros())

SILENT_SECONDS = 0.25
"""After which a worker asks its agent for another table."""

MOST_SECONDS = 60.0
"""For which a worker tries one request."""

Wait = Generator[float, None, Any]
"""Waits for something to happen, for so many seconds at most."""

Build = Callable[[SlotTable], Mapping[int, tuple[WorkerRequest, Sequence[Array]]]]
"""What is asked of each server, by its index in the table."""


def slots_of(ids: Array) -> Array:
    """The slot of each id."""
    hashed = np.array([int(kernels.mix(each)) for each in ids], np.uint64)
    return (hashed >> np.uint64(64 - kernels.SLOT_BITS)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Records:
    """What there is to train on.

    Attributes:
        ids: of each record of each shard, (shards, length, ids of a record) int64.
        slots: of these.
        model: the table beside `count`.
        count: as `COUNT`; in some runs ids are admitted to it.
        pace: seconds between two steps of a worker, at most.
    """

    ids: Array
    slots: Array
    model: TableSpec
    pace: float
    count: TableSpec = COUNT

    def merge(self, shard: int, begin: int, end: int) -> tuple[Array, Array]:
        """The distinct ids of these records, and how often each is there."""
        return np.unique(self.ids[shard, begin:end], return_counts=True)

    def gradients(self, shard: int, begin: int, end: int, ids: Array) -> Array:
        """Of the table `model`: the same whenever these records are trained on together."""
        numbers = np.random.default_rng((shard, begin, end)).standard_normal((len(ids), self.model.columns))
        return numbers.astype(np.float32)


@dataclass(slots=True)
class Piece:
    """A shard and whose it is.

    Attributes:
        shard: its index.
        lease: counts those who have had it.
        offset: what the ledger knows to be done.
        trainer: who has it.
        done: all of it.
    """

    shard: int
    lease: int = 0
    offset: int = 0
    trainer: "Trainer | None" = None
    done: bool = False


@dataclass(slots=True)
class ShardLedger:
    """Who has which shard.

    Attributes:
        pieces: all shards.
        acknowledged: by shard, how far pushes were acknowledged to anybody.
        rows_from: workers of earlier rounds lease nothing.
    """

    pieces: list[Piece]
    acknowledged: list[int] = field(default_factory=list[int])
    rows_from: int = 0

    def go_back(self, round: int) -> None:
        """It begins anew, for workers of that round."""
        self.rows_from = round
        self.pieces = [Piece(each.shard, each.lease) for each in self.pieces]

    def lease(self, trainer: "Trainer") -> Piece | None:
        """The next that nobody has; None: there is none now."""
        for piece in self.pieces if trainer.round >= self.rows_from else ():
            if not piece.done and piece.trainer is None:
                piece.trainer = trainer
                piece.lease += 1
                return piece
        return None

    def give_back(self, trainer: "Trainer") -> None:
        """It is known to be dead."""
        for piece in self.pieces:
            if piece.trainer is trainer:
                piece.trainer = None

    @property
    def over(self) -> bool:
        """All is done."""
        return all(piece.done for piece in self.pieces)


@dataclass(slots=True)
class Asked:
    """A connection to one server: what was sent and not answered, and the answers.

    Attributes:
        line: None: it is not there yet, or has gone.
        skip: answers that nobody waits for any more.
        reply: to what was sent last.
        broken: it cannot be used any more.
    """

    line: Line | None = None
    message: Message = b""
    pending: int = 0
    reply: tuple[Reply, list[Array]] | None = None
    broken: bool = False


class Trainer(LineProcess):
    """A worker.

    Args:
        find: the process of a server, by its incarnation.
        fail: hears of what ends the job and must not.
        acknowledged: hears of each push that all servers have answered.
        round: for which it is started.
        may_be_full: servers may have no room for a push, which is sent again after a while.

    Attributes:
        agent: of its node.
        pushing: it has sent a push that is not acknowledged.
    """

    def __init__(
        self,
        network: LineNetwork,
        name: str,
        agent: SlotAgent,
        records: Records,
        ledger: ShardLedger,
        find: Callable[[str], ServerProcess | None],
        fail: Callable[[str, str], object],
        acknowledged: Callable[["Trainer", PushSource], object],
        random: random.Random,
        round: int,
        *,
        may_be_full: bool = False,
    ) -> None:
        super().__init__(network, name, agent.machine)
        self.agent = agent
        self.round = round
        self.pushing = False
        self._records = records
        self._ledger = ledger
        self._find = find
        self._fail = fail
        self._acknowledged = acknowledged
        self._random = random
        self._may_be_full = may_be_full
        self._table = SlotTable()
        self._connections: dict[str, Asked] = {}
        self._asking = False
        self._batch = random.randint(1, 6)
        self._running = self._train()
        self._turn = 0
        self.hear(self._resume)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        self._turn += 1
        turn = self._turn
        try:
            seconds = next(self._running)
        except StopIteration:
            self.end()
            return

        def wake() -> None:
            if self._turn == turn:
                self._resume()

        self.network.timeline.after(seconds, lambda: self.hear(wake))

    def _pause(self, seconds: float) -> Wait:
        end = self.network.timeline.now + seconds
        while (left := end - self.network.timeline.now) > 0.0:
            yield left

    # -- training ---------------------------------------------------------------------------------------------------

    def _train(self) -> Wait:
        yield from self._open_tables()
        while not self._ledger.over:
            yield from self._pause(self._random.uniform(0.0, 0.05))
            if (piece := self._ledger.lease(self)) is not None:
                yield from self._train_on(piece)

    def _open_tables(self) -> Wait:
        for spec in (self._records.count, self._records.model):
            yield from self._ask_servers(
                lambda table, spec=spec: {at: (OpenTable(spec, table.version), ()) for at in primaries_of(table)}
            )

    def _train_on(self, piece: Piece) -> Wait:
        lease, length = piece.lease, self._records.ids.shape[1]
        replies = yield from self._ask_servers(
            lambda table: {
                at: (ReadMarks(DATASET, piece.shard, lease, table.version), ()) for at in primaries_of(table)
            }
        )
        marks = sorted({min(mark, length) for reply, _ in replies.values() for mark in reply.marks})
        position = max(piece.offset, min(marks, default=0))
        while position < length:
            following = [mark for mark in marks if mark > position]
            end = min([position + self._batch, length, *following])
            yield from self._push_records(piece, lease, position, end)
            position = end
            yield from self._pause(self._random.uniform(0.0, self._records.pace))
            if self._random.random() < 0.7:  # the others: the ledger hears of it later
                piece.offset = max(piece.offset, position)
        piece.offset, piece.done, piece.trainer = length, True, None

    def _push_records(self, piece: Piece, lease: int, begin: int, end: int) -> Wait:
        last = end == self._records.ids.shape[1]
        yield from self._push_source(piece.shard, PushSource(DATASET, piece.shard, lease, begin, end, last=last))

    def _push_source(self, shard: int, made: PushSource) -> Wait:
        """Of these records of the shard, or of the partition."""
        ids, counts = self._records.merge(shard, made.begin, made.end)
        if self._random.random() < 0.5:
            yield from self._pull(ids)
            yield from self._pause(self._random.uniform(0.0, 0.03))
        owners = slots_of(ids)
        count = -counts.astype(np.float32)[:, None]
        model = self._records.gradients(shard, made.begin, made.end, ids)
        source = replace(made, at=int(1000 * self.network.timeline.now))

        def build(table: SlotTable) -> dict[int, tuple[WorkerRequest, Sequence[Array]]]:
            primary = np.asarray(table.primary)[owners]
            pushed: dict[int, tuple[WorkerRequest, Sequence[Array]]] = {}
            for at in primaries_of(table):
                mine = primary == at
                arrays = (ids[mine], count[mine], ids[mine], model[mine])
                pushed[at] = PushGradients((COUNT.name, self._records.model.name), source, table.version), arrays
            return pushed

        self.pushing = True
        yield from self._ask_servers(build)
        self.pushing = False
        self._acknowledged(self, source)

    def _pull(self, ids: Array) -> Wait:
        owners = slots_of(ids)

        def build(table: SlotTable) -> dict[int, tuple[WorkerRequest, Sequence[Array]]]:
            primary = np.asarray(table.primary)[owners]
            wanted = sorted(set(primary.tolist()))
            return {at: (PullRows((COUNT.name,), table.version), (ids[primary == at],)) for at in wanted}

        yield from self._ask_servers(build)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask_servers(self, build: Build) -> Wait:
        """The answers of all, by index in the table; asks again under each newer table until none refuses."""
        began = self.network.timeline.now
        while True:
            while not self._table.serves:
                self._want_newer()
                yield SILENT_SECONDS
            table = self._table
            asked: dict[int, Asked] = {}
            for at, (request, arrays) in build(table).items():
                asked[at] = self._send(
                    table.servers[at], write_message(self.network, Asking(request, shapes_of(arrays)), arrays)
                )
            if (yield from self._await_answers(table, asked, began)):
                return {at: each.reply for at, each in asked.items() if each.reply is not None}

    def _await_answers(self, table: SlotTable, asked: Mapping[int, Asked], began: float) -> Wait:
        """Whether all have answered; False: they are to be asked again."""
        heard = self.network.timeline.now
        while True:
            replies = [each.reply[0] for each in asked.values() if each.reply is not None]
            for reply in replies:
                if reply.refused not in (("", "moved", "full") if self._may_be_full else ("", "moved")):
                    self.refuse(reply)
            if any(reply.refused == "moved" and reply.version < table.version for reply in replies):
                yield from self._pause(0.002)  # that server has not read this table yet
                if all(each.reply is not None or each.broken for each in asked.values()):
                    return False
            elif any(reply.refused == "moved" for reply in replies):
                self._want_newer()
            elif any(reply.refused for reply in replies):
                yield from self._pause(self._random.uniform(0.0, 0.1))
                if all(each.reply is not None or each.broken for each in asked.values()):
                    return False
            elif len(replies) == len(asked):
                return True
            if self._table.version > table.version:
                if all(each.reply is not None or each.broken for each in asked.values()):
                    return False
                if self.network.timeline.now - heard > SILENT_SECONDS:
                    for each in asked.values():
                        if each.reply is None:
                            self._close(each)
                    return False
            for each in asked.values():
                if each.broken and each.reply is None and self._table.version == table.version:
                    self._want_newer()
                    yield from self._pause(0.02)
                    return False
            if self.network.timeline.now - heard > SILENT_SECONDS:
                self._want_newer()
            if self.network.timeline.now - began > MOST_SECONDS:
                self._fail("a worker is answered", f"{self.name} was not answered within {MOST_SECONDS:g} s")
                return False
            yield SILENT_SECONDS / 2

    def refuse(self, reply: Reply) -> None:
        """A server does."""
        self._fail("no valid request is refused", f"{self.name} was refused {reply.refused!r}: {reply.text}")

    def _want_newer(self) -> None:
        if self._asking:
            return
        self._asking = True

        def told(table: SlotTable) -> None:
            def read() -> None:
                self._asking = False
                if table.version > self._table.version:
                    self._table = table
                self._resume()

            self.network.timeline.after(self.network.random.uniform(0.0001, 0.002), lambda: self.hear(read))

        self.agent.ask_newer(self._table.version, self.round, told)

    def _send(self, server: RunningServer, message: Message) -> Asked:
        found = self._connections.get(server.incarnation)
        if found is None or found.broken:
            found = self._connections[server.incarnation] = Asked()
            self._dial(server.incarnation, found)
        found.reply, found.message = None, message
        if found.line is not None:
            found.pending += 1
            found.line.send(self, message)
        return found

    def _dial(self, incarnation: str, asked: Asked) -> None:
        def told(line: Line | None) -> None:
            if asked.broken:
                if line is not None:
                    line.leave(self)
            elif line is None:
                asked.broken = True
                self._resume()
            else:
                asked.line = line
                asked.pending += 1
                line.send(self, asked.message)

        self.network.dial(self, lambda: self._find(incarnation), told)

    def _close(self, asked: Asked) -> None:
        asked.broken = True
        if asked.line is not None:
            asked.line.leave(self)

    def take(self, line: Line, message: Message) -> None:
        asked = self._asked_on(line)
        if asked is not None:
            asked.pending -= 1
            if not asked.pending:
                head, arrays = read_message(Replying, message)
                asked.reply = head.reply, arrays
                self._resume()

    def lose(self, line: Line) -> None:
        if (asked := self._asked_on(line)) is not None:
            asked.broken = True
            self._resume()

    def _asked_on(self, line: Line) -> Asked | None:
        return next((each for each in self._connections.values() if each.line is line), None)


def primaries_of(table: SlotTable) -> list[int]:
    """The servers that are the primary of some slot."""
    return sorted(set(table.primary))
