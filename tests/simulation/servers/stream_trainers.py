"""Workers that train on a stream: the product's ledger of it, and the offsets of partitions that grow and are added.

Partition `3` has the records of shard 3, and a record's offset is its place among them. Where the job goes back, the
ledger begins anew with the position that a worker reads from the rows, and with leases of another size.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_run.adapters.servers.offset_marks import Range, choose_open, read_applied
from elastic_run.adapters.servers.requests import Offsets, PushSource, ReadMarks, ReadStream
from elastic_run.master.data.ledger import (
    Answer,
    Dataset,
    Ledger,
    Mark,
    OffsetRange,
    Request,
    StreamTerms,
    fresh,
    ledger_of,
)
from elastic_run.master.data.stored_ledger import read, written
from elastic_run.master.data.stream import StreamLayout
from elastic_run.rendezvous.base.frozen import replace

from .timeline import Timeline
from .trainers import Piece, Records, ShardLedger, Trainer, Wait, primaries_of

GROWS = 3.0
"""Seconds after which nothing is added to the source."""


class StreamBook(ShardLedger):
    """Who has which offsets.

    Args:
        lease: offsets in one, at most.
    """

    def __init__(self, records: Records, timeline: Timeline, chance: random.Random, lease: int, round: int) -> None:
        super().__init__([])
        self._partitions, self._length, _ = records.ids.shape
        self._timeline = timeline
        self._random = chance
        self._lease = lease
        self._ranks: dict[Trainer, int] = {}
        self._sequences: dict[Trainer, int] = {}
        self._over = False
        self.layout = StreamLayout("clicks", "log", lease, StreamTerms())
        self._ledger = self._make_ledger(replace(self.layout.dataset("ack"), alone=True), round, 0)

    def _make_ledger(self, dataset: Dataset, round: int, ends: int) -> Ledger:
        ledger = ledger_of(replace(fresh(dataset), ends=ends), 0.0)
        ledger.turn(round)
        return ledger

    @property
    def over(self) -> bool:
        return self._over

    def go_back(self, round: int) -> None:
        self.rows_from = round
        size = self._random.randint(1, 2 * self._lease)
        self.layout = StreamLayout("clicks", "log", size, StreamTerms())
        state = self._ledger.state
        self._ledger = self._make_ledger(replace(state.dataset, shard_size=size), round, state.ends)

    def give_back(self, trainer: Trainer) -> None:
        self._ledger.end_workers({self._ranks.get(trainer, -1)})

    def begin(self, trainer: Trainer, applied: Mapping[str, Sequence[Range]]) -> bool:
        """It opens the stream; False: its round is over."""
        rank = self._ranks.setdefault(trainer, len(self._ranks))
        request = Request("open", "clicks", trainer.round, rank, rank + 1, dataset=self._ledger.dataset)
        return self._ask(trainer, replace(request, restored=self.layout.follow_rows(applied))) is not None

    def exchange(self, trainer: Trainer, done: Sequence[int]) -> Answer | None:
        """It has done these, and gets one more; None: its round is over."""
        rank = self._ranks[trainer]
        self._sequences[trainer] = number = self._sequences.get(trainer, 0) + 1
        marks = tuple(Mark(each) for each in done)
        request = Request("exchange", "clicks", trainer.round, rank, rank + 1, sequence=number, marks=marks, wants=1)
        return self._ask(trainer, replace(request, known=tuple(self._list_known())))

    def _list_known(self) -> list[OffsetRange]:
        grown = min(1.0, self._timeline.now / GROWS)
        there = max(1, round(grown * self._partitions))
        return [OffsetRange(str(each), 0, round(grown * self._length)) for each in range(there)]

    def _ask(self, trainer: Trainer, request: Request) -> Answer | None:
        if trainer.round < self.rows_from:
            return None
        if self._random.random() < 0.1:  # another master
            self._ledger = ledger_of(read(written(self._ledger.state)), 0.0)
        answer = self._ledger.answer(request, 0.0, trainer.round)
        assert answer is not None and answer.kind == "ok", answer
        state = self._ledger.state
        ends = {each.partition: (each.first, each.stop) for each in state.partitions}
        self._over = (
            list(ends.values()) == [(self._length, self._length)] * self._partitions
            and not state.returned
            and not any(each.leases for each in state.owners)
        )
        return answer


class StreamTrainer(Trainer):
    """A worker.

    Args:
        book: the stream.
        rest: as `Trainer` takes it.
    """

    def __init__(self, book: StreamBook, *rest: Any, may_be_full: bool) -> None:  # Any: of several types
        self._book = book
        super().__init__(*rest, may_be_full=may_be_full)

    def _train(self) -> Wait:
        yield from self._open_tables()
        order = self._book.layout.order
        replies = yield from self._ask_servers(
            lambda table: {at: (ReadStream(order, table.version), ()) for at in primaries_of(table)}
        )
        if not self._book.begin(self, read_applied(arrays for _, arrays in replies.values())):
            return
        done: list[int] = []
        while not self._book.over:
            yield from self._pause(self._random.uniform(0.0, 0.05))
            answer = self._book.exchange(self, done)
            if answer is None:
                return
            floors = tuple(Offsets(each.partition, each.first, each.stop) for each in answer.floors)
            for piece in answer.leases:
                assert piece.offsets
                yield from self._train_on_offsets(piece.offsets, answer.lease, floors)
            done = [piece.shard_index for piece in answer.leases]

    def _train_on_offsets(self, offsets: OffsetRange, lease: int, floors: tuple[Offsets, ...]) -> Wait:
        order, position = self._book.layout.order, offsets.first
        while position < offsets.stop:
            wanted = Offsets(offsets.partition, position, offsets.stop)
            replies = yield from self._ask_servers(
                lambda table, wanted=wanted: {
                    at: (ReadMarks(order, 0, lease, table.version, wanted, floors), ()) for at in primaries_of(table)
                }
            )
            found = choose_open(reply.marks for reply, _ in replies.values())
            if found is None:
                return
            position, until = found
            while position < until:
                end = min(position + self._batch, until)
                source = PushSource(order, 0, lease, position, end, partition=offsets.partition)
                yield from self._push_source(int(offsets.partition), source)
                position = end
                yield from self._pause(self._random.uniform(0.0, self._records.pace))

    def _train_on(self, piece: Piece) -> Wait:
        raise AssertionError("a stream has no shards with an index")
