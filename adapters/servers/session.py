"""What one worker process has to do with the job's servers: its tables, and gradients on their way."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...master.data.ledger import OffsetRange
from ...rendezvous.base.frozen import dataclass, replace
from ..client import pushes
from ..client.pushes import StepRecords
from ..client.shards import list_opened
from . import kernels
from .client import Answer, Exchange, ServersConnection, Split, ask_each, merge
from .errors import PushRefused, ServerFull, TableMisused
from .offset_marks import Range, choose_open, read_applied
from .own_server import OwnServer
from .requests import (
    ApplyStep,
    Offsets,
    OpenTable,
    PrepareGradients,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    ReadStream,
    StepShare,
)
from .routing import GroupedIds, Routes
from .server_events import Array
from .specs import TableSpec
from .step_clock import StepClock, start_clock
from .step_recovery import RowPosition, settle_steps
from .table_source import connect_agent, kept_here
from .tables import check_usable
from .wire_numbers import read_numbers, round_numbers

OWN_STALENESS = 1
"""Pushes of this worker that rows which were fetched ahead may lack, where a table has no bound."""

MOST_WAITING = 256
"""Pulls of a table whose gradients have not been pushed."""

MOST_AHEAD = 8
"""Pulls of a table that are fetched ahead and not used; before the next, the oldest is forgotten."""

UNPUSHED = (
    "steps were made with gradients of a table, and nothing has said of which records they are: call "
    "shard.progress(n), shard.done() or loader.commit(), or commit() of an ElasticBatchSampler, after each step of the "
    "optimizer"
)

SCALED = (
    "a GradScaler scales the loss, and so the gradients of tables, which it does not scale back: use "
    "torch.autocast with bfloat16, which needs none, or GradScaler(enabled=False)"
)

NOT_PREPARED = (
    "No rank has this step in its rows or its position: start the job again with more memory or servers. With "
    "--ps-checkpoint=DIR it begins with the last checkpoint of its tables; without, its tables begin anew"
)

Gradient = Callable[[], "Array | None"]
"""Gives the gradient of the rows that were pulled, (n, columns) float32; None: there is none."""


def never() -> bool:
    """What is not there does not come any more."""
    return False


@dataclass(frozen=True, slots=True)
class AwaitedGradient:
    """Of rows that were pulled: their ids, the gradient, and whether it may come where it is not there."""

    ids: Array
    gradient: Gradient
    may_come: Callable[[], bool]


class Pull:
    """Rows that are wanted of one table.

    Args:
        table: its name.
        ids: int64, as the script has them.

    Attributes:
        given: these.
    """

    def __init__(self, table: str, ids: Array) -> None:
        self._table = table
        self.given = ids
        self._ids, self._inverse = merge(ids)
        self._grouped: GroupedIds | None = None

    def split_by_server(self, routes: Routes) -> list[tuple[PullRows, list[Array]]]:
        """For `ServersConnection`."""
        grouped = self._grouped = routes.group_ids(self._ids)
        shares = grouped.share_count(len(self.given))
        return [
            (PullRows((self._table,), routes.table.version, share), [grouped.take_part(grouped.ids, server)])
            for server, share in enumerate(shares)
        ]

    def join_rows(self, answers: list[Answer]) -> tuple[Array, Array, Array]:
        """The distinct ids, the row of each, and which of them each is of the ids that the script has."""
        assert self._grouped is not None
        parts = [rows for _, (rows,) in answers]
        if len(parts) == 1:
            return self._ids, read_numbers(parts[0]), self._inverse
        rows = read_numbers(np.concatenate(parts))
        return self._grouped.ids, rows, self._grouped.find_places()[self._inverse]


class Push:
    """Gradients that are computed from the same records; it stays the same until every server has applied it.

    Args:
        source: the records.
        gradients: by table, ids, each once, and their gradients, of its dtype.
        share: which rank's part of a step it is; None: it is no part of one, and applied at once.
    """

    def __init__(
        self, source: PushSource, gradients: dict[str, tuple[Array, Array]], share: StepShare | None = None
    ) -> None:
        self.source = source
        self._gradients = gradients
        self._share = share

    def split_by_server(self, routes: Routes) -> list[tuple[PushGradients | PrepareGradients, list[Array]]]:
        """For `ServersConnection`: each server gets its part, if it is empty, too, because it moves its marks."""
        names, version = tuple(self._gradients), routes.table.version
        request = PushGradients(names, self.source, version)
        if self._share is not None:
            request = PrepareGradients(names, self.source, self._share, version)
        arrays: list[list[Array]] = [[] for _ in routes.servers]
        for ids, gradients in self._gradients.values():
            grouped = routes.group_ids(ids)
            ordered = gradients if len(arrays) == 1 else grouped.reorder_rows(gradients)
            for server, found in enumerate(arrays):
                found += grouped.take_part(grouped.ids, server), grouped.take_part(ordered, server)
        return [(request, found) for found in arrays]


@dataclass(frozen=True, slots=True)
class FetchedAhead:
    """A pull whose answer is not taken yet.

    Attributes:
        pushes, lowest: how often this process had pushed when it was asked for, and the lowest clock then.
    """

    pull: Pull
    exchange: Exchange
    pushes: int
    lowest: int


class ServersClient:
    """Of this process.

    Args:
        connection: to the servers, or what stands for them in this process.
        start_clock: for this bound; it is called when the first table has one.

    Attributes:
        clock: of this worker, where a table has a bound.
        rows_found: that tables had on all servers, second copies included, when they were declared here.
    """

    def __init__(
        self,
        connection: ServersConnection | OwnServer,
        start_clock: Callable[[int], StepClock] = start_clock,
    ) -> None:
        self._pid = os.getpid()
        self._connection = connection
        self._start_clock = start_clock
        self.clock: StepClock | None = None
        self.rows_found = 0
        self._specs: dict[str, TableSpec] = {}
        self._pulled: dict[str, list[AwaitedGradient]] = {}
        self._refused: Push | None = None  # the last, where not every server has applied it
        self._lock = threading.Lock()
        self._stepped: set[int] = set()  # optimizers
        self._pushes = 0
        self._ahead: dict[str, deque[FetchedAhead]] = {}

    @property
    def specs(self) -> list[TableSpec]:
        """Of the tables that are declared here."""
        return list(self._specs.values())

    @property
    def pushes(self) -> int:
        """Calls that have named records."""
        return self._pushes

    def ask_servers(self, split: Split) -> list[Answer]:
        """See `ServersConnection.ask_servers`."""
        with self._lock:
            return self._connection.ask_servers(split)

    def put_exported(self, folder: Path) -> None:
        """Gives the tables of this process itself the rows that were exported. Raises TableMisused, OSError."""
        assert isinstance(self._connection, OwnServer)
        self._connection.put_exported(folder)

    def open_table(self, spec: TableSpec) -> None:
        """Declares it. Raises TableMisused, ServerGone."""
        spec.check()
        with self._lock:
            answers = self._connection.ask_servers(ask_each(OpenTable(spec, 0)))
            self.rows_found += sum(reply.count for reply, _ in answers)
            bound = None if isinstance(self._connection, OwnServer) else spec.max_staleness  # else nobody is slower
            if bound is not None:
                self.clock = self.clock or self._start_clock(bound)
                self.clock.bound = max(self.clock.bound, bound)
        self._specs[spec.name] = spec
        self._pulled.setdefault(spec.name, [])

    def await_step(self, table: str) -> None:
        """Before rows are pulled that are trained on: waits for slower workers, where the table has a bound."""
        bound = self._specs[table].max_staleness
        if self.clock and bound is not None:
            with self._lock:
                self.clock.await_step(bound)

    def pull_for_step(self, spec: TableSpec, ids: Array, *, trains: bool = True) -> tuple[Array, Array, Array]:
        """As `pull`, also what was fetched ahead and is not too old; waits for slower workers where a step `trains`."""
        if trains:
            self.await_step(spec.name)
        return self.pull(spec.name, ids, OWN_STALENESS if spec.max_staleness is None else spec.max_staleness)

    def prefetch(self, table: str, ids: Array) -> None:
        """Asks for the rows of these ids (int64), and does not wait: a `pull` of the same ids takes them."""
        with self._lock:
            found = self._ahead.setdefault(table, deque(maxlen=MOST_AHEAD))
            pull = Pull(table, ids.copy())  # a script may fill its array anew before the ids are compared
            lowest = self.clock.lowest if self.clock else 0
            found.append(FetchedAhead(pull, self._connection.begin(pull.split_by_server), self._pushes, lowest))

    def pull(self, table: str, ids: Array, max_staleness: int = -1) -> tuple[Array, Array, Array]:
        """The distinct ids among `ids` (int64), the row of each, and which of them each of `ids` is.

        Args:
            max_staleness: pushes of this process that rows which were fetched ahead may lack; -1: they are not used.
        """
        with self._lock:
            if ahead := self._take_ahead(table, ids, max_staleness):
                return ahead.pull.join_rows(self._connection.finish(ahead.exchange))
            pull = Pull(table, ids)
            return pull.join_rows(self._connection.ask_servers(pull.split_by_server))

    def _take_ahead(self, table: str, ids: Array, max_staleness: int) -> FetchedAhead | None:
        found = self._ahead.setdefault(table, deque(maxlen=MOST_AHEAD))
        bound = self._specs[table].max_staleness if table in self._specs else None
        least = self.clock.clock - bound if self.clock and bound is not None else 0
        for each in found:
            fresh = self._pushes - each.pushes <= max_staleness and each.lowest >= least
            if fresh and np.array_equal(each.pull.given, ids):
                found.remove(each)
                return each
        return None

    def await_gradient(
        self, table: str, distinct: Array, gradient: Gradient, may_come: Callable[[], bool] = never
    ) -> None:
        """The gradient of these ids is pushed with the records that the script names next.

        Where there is none by then, it is pushed with those that are named after that, while it `may_come`.
        """
        with self._lock:
            waiting = self._pulled.setdefault(table, [])
            if len(waiting) >= MOST_WAITING:
                raise TableMisused(f"table {table!r}: {UNPUSHED}")
            waiting.append(AwaitedGradient(distinct, gradient, may_come))

    def has_waiting(self, table: str) -> bool:
        """Whether gradients of it wait for the name of their records."""
        return bool(self._pulled[table])

    def check_step(self, optimizer: int, *, scaled: bool = False) -> None:
        """Before a step of that optimizer. Raises TableMisused at its second, where nothing was ever pushed.

        Args:
            scaled: its gradients were those of a loss that was scaled: TableMisused at once.
        """
        if scaled:
            raise TableMisused(SCALED)
        if self._pushes or not any(self._pulled.values()):
            return
        if optimizer in self._stepped:
            raise TableMisused(UNPUSHED)
        self._stepped.add(optimizer)

    def push_once(self, table: str, part: int, ids: Array, gradients: Array, piece: int = 0) -> None:
        """Gradients of no records, for rows of a table: in the whole job those count that come first for that piece.

        Args:
            part: whose pieces follow each other; `cuts` of the dataset `table` tells how many of them are there.
            ids: (n,) int64, each once.
            gradients: (n, columns) float32.

        Raises PushRefused where `cuts` was asked with a lease: then nothing more of this part is pushed.
        """
        push = Push(PushSource(table, part, 0, piece, piece + 1), {table: (ids, gradients)})
        self.ask_servers(push.split_by_server)

    def cuts(self, dataset: str, shard_index: int, lease: int, offset: int) -> list[int]:
        """See `Pushes`."""
        with self._lock:
            answers = self._connection.ask_servers(ask_each(ReadMarks(dataset, shard_index, lease, 0)))
        return sorted({max(offset, mark) for reply, _ in answers for mark in reply.marks})

    def push(self, dataset: str, shard_index: int, lease: int, begin: int, end: int, *, last: bool = False) -> None:
        """See `Pushes`: all gradients that there are, as those of these records.

        Where a server refuses it for want of memory, another may have applied its part. So the same push goes first,
        the next time, and what was computed since then follows.
        """
        self._push(PushSource(dataset, shard_index, lease, begin, end, _now(), last))

    def find_applied(self, dataset: str) -> Mapping[str, Sequence[Range]]:
        """See `Pushes`."""
        answers = self.ask_servers(ask_each(ReadStream(dataset, 0)))
        return read_applied(arrays for _, arrays in answers)

    def find_open(self, dataset: str, offsets: OffsetRange, lease: int, floors: Sequence[OffsetRange]) -> Range | None:
        """See `Pushes`."""
        wanted, *before = (Offsets(each.partition, each.first, each.stop) for each in (offsets, *floors))
        question = ReadMarks(dataset, 0, lease, 0, wanted, tuple(before))
        answers = self.ask_servers(ask_each(question))
        return choose_open(reply.marks for reply, _ in answers)

    def push_offsets(self, dataset: str, offsets: OffsetRange, lease: int) -> None:
        """See `Pushes`."""
        begin, end = offsets.first, offsets.stop
        self._push(PushSource(dataset, 0, lease, begin, end, _now(), partition=offsets.partition))

    def _push(self, source: PushSource) -> None:
        with self._lock:
            begin, end = source.begin, source.end
            if refused := self._refused:
                before = refused.source
                same = replace(before, lease=0, end=0, at=0, last=False) == replace(
                    source, lease=0, end=0, at=0, last=False
                )
                try:
                    self._send(refused)
                except PushRefused:
                    if same:
                        raise
                begin = max(begin, refused.source.end) if same else begin
            if begin < end:
                self._send(Push(replace(source, begin=begin), self._take_gradients()))
            self._pushes += 1
            if self.clock:
                self.clock.count_push()

    @property
    def in_doubt(self) -> bool:
        """See `Pushes`."""
        return self._refused is not None

    def rest(self) -> None:
        """See `Pushes`. A process that was forked from this one has no say in it."""
        if self.clock and self._pid == os.getpid():
            with self._lock:
                self.clock.rest()

    def settle_steps(self, dataset: str, round: int, position: RowPosition) -> list[RowPosition]:
        """See `Pushes`."""
        with self._lock:
            for waiting in self._pulled.values():
                waiting.clear()
            self._ahead.clear()
            asking = settle_steps(dataset, round, position)
            question = next(asking)
            while True:
                found = list[int]()
                try:
                    found = self._ask_marks(question)
                except PushRefused:  # of ranks that the job has gone on without; or nothing is prepared, which is right
                    if isinstance(question, ReadMarks):
                        raise
                try:
                    question = asking.send(found)
                except StopIteration as settled:
                    return settled.value

    def _ask_marks(self, question: ReadMarks | ApplyStep) -> list[int]:
        """All marks that servers answer, under whatever version."""
        answers = self._connection.ask_servers(ask_each(question))
        return sorted({mark for reply, _ in answers for mark in reply.marks})

    def prepare_step(self, step: StepRecords, rank: int, world: int) -> None:
        """See `Pushes`. Raises TableMisused, ServerFull, PushRefused, ServerGone."""
        source = PushSource(*step[:2], lease=step.round, begin=step.begin, end=step.end, at=_now())
        with self._lock:
            push = Push(source, self._take_gradients(world), StepShare(rank, world))
            try:
                self._connection.ask_servers(push.split_by_server)
            except ServerFull as error:
                raise ServerFull(f"{error}. {NOT_PREPARED}") from None

    def apply_step(self, step: StepRecords) -> None:
        """See `Pushes`. Raises ServerFull, PushRefused, ServerGone."""
        with self._lock:
            self._ask_marks(ApplyStep(*step[:2], lease=step.round, end=step.end, version=0))
            self._ahead.clear()  # or whether rows have this step would depend on what came first
            self._pushes += 1
            if self.clock:
                self.clock.count_push()

    def _take_gradients(self, world: int = 1) -> dict[str, tuple[Array, Array]]:
        """All that there are, which then wait no more, divided by `world`.

        Raises TableMisused where one is no finite number.
        """
        found: dict[str, tuple[Array, Array]] = {}
        for table, waiting in self._pulled.items():
            given = [(each, each.gradient()) for each in waiting]
            parts = [(each.ids, array) for each, array in given if array is not None]
            waiting[:] = [each for each, array in given if array is None and each.may_come()]
            if parts:
                found[table] = parts[0] if len(parts) == 1 else sum_parts(parts)
        for table, (ids, gradients) in found.items():
            if spec := self._specs.get(table):
                rounded = round_numbers(gradients if world == 1 else gradients / np.float32(world), spec.dtype)
                check_usable(spec, rounded)
                found[table] = ids, rounded
        return found

    def _send(self, push: Push) -> None:
        self._refused = push
        try:
            self._connection.ask_servers(push.split_by_server)
        except PushRefused:
            self._refused = None  # the records are another worker's, who computes their gradients
            raise
        self._refused = None


def _now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def sum_parts(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Each id of these parts once, and the sum of its gradients."""
    distinct, inverse = merge(np.concatenate([ids for ids, _ in parts]))
    gradients = np.concatenate([each for _, each in parts])
    summed = np.zeros((len(distinct), gradients.shape[1]), np.float32)
    kernels.sum_rows(gradients, inverse, summed)
    return distinct, summed


_sessions: dict[int, ServersClient] = {}


def session() -> ServersClient:
    """This process's. Raises TableMisused where the job has no servers, or it comes after the first shard."""
    if (found := _sessions.get(os.getpid())) is None:
        if opened := list_opened():
            raise TableMisused(
                f"a table is declared after dataset {opened[0].layout.name!r} was used: its shards were leased as if "
                "no gradients went to tables. Declare all tables before the first shard, or close() the dataset"
            )
        own = os.getpid() in kept_here
        found = _sessions[os.getpid()] = ServersClient(OwnServer() if own else ServersConnection(connect_agent()))
        pushes.registered[:] = [found]
    return found


def check_step(optimizer: int, *, scaled: bool) -> None:
    """See `ServersClient.check_step`; a process that has declared no table is not checked."""
    if (found := _sessions.get(os.getpid())) is not None:
        found.check_step(optimizer, scaled=scaled)
