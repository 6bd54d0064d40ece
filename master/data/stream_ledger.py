"""Which offsets of a stream go to whom: the ledger of a dataset that has no end (pure).

A stream has partitions, and a partition has offsets in order, with gaps where there is no record. The master never asks
the stream's source: workers say with their requests which offsets each partition has by now (`Request.known`). What was
never leased of a partition is one range, `State.partitions`: from `first` on, and as far as is known.

A shard is the range that one lease takes from the front of that: at most `shard_size` offsets. Its shard index says
which lease it was, so all that `ledger.py` says of shards holds: one is done, returned or leased, and the state grows
with the number of workers and of partitions, not of offsets. A piece carries its range as long as it is not done.

  - No shard is leased to two workers at a time: what a stream's records do to a model is not done twice.
  - Whoever wants a shard where there is none is told so at once, since it is the one that looks at the source.
  - Offsets that are gone before they were leased (the source keeps records for a while only) end the job, or are
    counted in `State.lost`, as the stream's terms say; those that are gone from a lease, its worker counts.
  - `follow=False`: the stream ends where its partitions ended when they were first told.
  - In tracking mode "checkpoint" `State.origins` keeps what each partition had to be read when it was first told. A
    round goes on from there in a partition that the restored position does not have.
  - Where it is `alone`, its gradients go to tables, which say by themselves what they have. So a ledger that begins
    anew, in another run or because rows went back to a checkpoint, begins (`State.begun`) with the position that the
    first rank to open it has read from them; `origins` stay then. With each lease it says the *floors*: before these
    nothing is ever leased again, so tables need not know more of it.

Invariants: every offset from a partition's beginning to its `first` is done, lost, or in one piece that is returned or
leased; `first` and `stop` only grow, but for a round that restores a position.
"""

from collections.abc import Iterable, Mapping

from ...rendezvous.base.frozen import replace
from .ledger import (
    MAX_WANTED,
    Answer,
    Ledger,
    OffsetRange,
    Piece,
    Position,
    Progress,
    Request,
    State,
    StreamTerms,
    _Worker,  # pyright: ignore[reportPrivateUsage]  # the other half of one class
)

MAX_PARTITIONS = 1000
"""The ledger of a stream with more would be too large to be written with every answer."""


class StreamLedger(Ledger):
    """The ledger of one stream. See `Ledger`."""

    def __init__(self, state: State, now: float) -> None:
        super().__init__(state, now)
        self._partitions = {each.partition: each for each in state.partitions}
        self._leased = state.leased
        self._lost = state.lost
        self._origins = {each.partition: each for each in state.origins}
        self._trouble = ""

    @property
    def _leases_once(self) -> bool:
        return True

    @property
    def state(self) -> State:
        """See `Ledger.state`."""
        origins = tuple(self._origins[name] for name in sorted(self._origins))
        return replace(super().state, partitions=self._ranges, leased=self._leased, lost=self._lost, origins=origins)

    @property
    def position(self) -> Position:
        """See `Ledger.position`."""
        return replace(super().position, partitions=self._ranges, leased=self._leased, lost=self._lost)

    @property
    def progress(self) -> Progress:
        """How far it is; its shards are those that were leased, and those that what is known would make."""
        found = super().progress
        begun = [*self._returned, *(piece for one in self._all for piece in one.leases.values())]
        out = sum(_length(piece.offsets) - piece.offset for piece in begun)
        waiting = sum(map(_length, self._ranges))
        more = sum(-(-_length(each) // self.dataset.shard_size) for each in self._ranges)
        return replace(
            found,
            shards=self._frontier + more,
            seconds_left=None,
            records=self._leased - out,
            lag=waiting + out,
            lost=self._lost,
        )

    @property
    def finished(self) -> bool:
        """The stream has an end, and everything before it is done."""
        return self._all_leased and not self._returned and not any(one.leases for one in self._all)

    @property
    def _all_leased(self) -> bool:
        looked = self._origins if self._follows_rows else self._partitions
        return not self._follows and bool(looked) and not any(map(_length, self._ranges))

    @property
    def _read_as(self) -> tuple[str, StreamTerms | None]:
        return self.dataset.files, self.dataset.stream

    @property
    def _follows(self) -> bool:
        return self.dataset.stream is not None and self.dataset.stream.follow

    @property
    def _ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(self._partitions[name] for name in sorted(self._partitions))

    def turn(self, round: int, since: Mapping[int, int] | None = None) -> None:
        """See `Ledger.turn`."""
        begun = self._state.begun
        super().turn(round, since)
        self._state = replace(self._state, begun=begun and self._follows_rows)
        self._trouble = ""
        if self.dataset.tracking != "ack":
            self._partitions, self._leased, self._lost = {}, 0, 0

    def _open(self, request: Request) -> Answer | None:
        here = self.dataset.stream
        if request.dataset and here and (told := request.dataset.stream) and told.lost != here.lost:
            # After a job that has failed for what is gone, the script says that it may be skipped.
            dataset = replace(self.dataset, stream=replace(here, lost=told.lost))
            self._state = replace(self._state, dataset=dataset)
            self.changed = True
        declared = request.dataset
        checkpoint = self.dataset.tracking == "checkpoint"
        if checkpoint and declared and not self._state.begun and (declared.files, declared.stream) != self._read_as:
            self._origins = {}  # the script is another than last round
        answer = super()._open(request)
        if answer and answer.kind == "ok" and self._follows_rows and not self._state.begun and not self._frontier:
            self._begin(request.restored)
            self._state = replace(self._state, origin=None)
        return answer

    def _begin(self, restored: Position | None) -> None:
        super()._begin(restored)
        origin = restored or Position()
        self._partitions = self._origins | {
            each.partition: replace(each, stop=max(each.stop, self._end_at_first(each.partition)))
            for each in origin.partitions
        }
        self._leased, self._lost = origin.leased, origin.lost

    def _end_at_first(self, partition: str) -> int:
        """Where it ended when it was first told, as far as that is known."""
        known = self._origins.get(partition)
        return known.stop if known and self._follows_rows else 0

    def answer(self, request: Request, now: float, since: int | None = None) -> Answer | None:
        """See `Ledger.answer`."""
        answer = super().answer(request, now, since)
        if answer and answer.leases and self._follows_rows:
            return replace(answer, floors=self._floors)
        return answer

    @property
    def _follows_rows(self) -> bool:
        return self.dataset.alone and self.dataset.tracking == "ack"

    @property
    def _floors(self) -> tuple[OffsetRange, ...]:
        """Of each partition, the offsets before the first that is leased, or to be."""
        firsts = {name: each.first for name, each in self._partitions.items()}
        for piece in [*self._returned, *(piece for one in self._all for piece in one.leases.values())]:
            if offsets := piece.offsets:
                firsts[offsets.partition] = min(firsts.get(offsets.partition, offsets.first), offsets.first)
        return tuple(OffsetRange(name, 0, first) for name, first in sorted(firsts.items()))

    # -- what workers tell ----------------------------------------------------------------------------------------

    def _mark(self, request: Request, now: float) -> None:
        held = {index for worker in self._workers[request.rank].values() for index in worker.leases}
        self._lost += sum(mark.lost for mark in request.marks if mark.shard_index in held)
        super()._mark(request, now)
        self._note_known(request.known)

    def _note_known(self, known: Iterable[OffsetRange]) -> None:
        """Takes in which offsets the partitions have by now; workers may have looked in another order than they ask."""
        terms = self.dataset.stream
        assert terms is not None, "else it were no stream"
        keeps_origins = self.dataset.tracking == "checkpoint" or self._follows_rows
        first_time = not (self._origins if self._follows_rows else self._partitions)
        passes = not self._partitions and terms.start == "latest"
        for told in known:
            here = self._partitions.get(told.partition)
            if here is not None and self._follows_rows and told.partition not in self._origins:
                # Rows have said where it begins, and not where it ends.
                here = replace(here, stop=max(here.stop, told.stop))
                self._origins[told.partition] = self._partitions[told.partition] = here
            if here is None and (first_time or terms.follow):
                if len(self._partitions) == MAX_PARTITIONS:
                    self._trouble = f"{self.dataset.name!r} has more than {MAX_PARTITIONS} partitions, the most it may"
                    return
                origin = replace(told, first=told.stop) if first_time and passes else told
                self._partitions[told.partition] = origin
                if keeps_origins:
                    self._origins[told.partition] = origin
            elif here is not None:
                self._go_on(here, told)

    def _go_on(self, here: OffsetRange, told: OffsetRange) -> None:
        """The partition has other offsets than when it was told last."""
        stop = max(here.stop, told.stop) if self._follows else here.stop
        first = min(told.first, stop) if told.first > here.first else here.first
        if first > here.first and self.dataset.stream and self.dataset.stream.lost == "fail":
            self._trouble = describe_gone(self.dataset.name, replace(here, stop=first))
            first = here.first
        self._lost += first - here.first
        self._partitions[here.partition] = OffsetRange(here.partition, first, stop)

    # -- leases ---------------------------------------------------------------------------------------------------

    def _grant(self, worker: _Worker, wants: int, now: float) -> Answer | None:
        if self._trouble:
            return Answer("refused", self._trouble)
        if wants <= 0:
            return Answer(ended=self.finished)
        pieces = self._returned[: min(wants, MAX_WANTED)]
        del self._returned[: len(pieces)]
        pieces += self._cut_pieces(min(wants, MAX_WANTED) - len(pieces))
        if not pieces:
            return Answer(ended=self.finished or (self._all_leased and self.dataset.tracking == "checkpoint"))
        if not worker.leases:
            worker.head_since = now
        worker.leases.update((piece.shard_index, piece) for piece in pieces)
        return Answer(leases=tuple(pieces))

    def _cut_pieces(self, count: int) -> list[Piece]:
        """New shards: of the partition that has the most to do, as long as it has any; a worker reads on in it."""
        pieces: list[Piece] = []
        for each in sorted(self._ranges, key=_length, reverse=True):
            first = each.first
            while first < each.stop and len(pieces) < count:
                stop = min(first + self.dataset.shard_size, each.stop)
                pieces.append(Piece(self._frontier, offsets=OffsetRange(each.partition, first, stop)))
                self._frontier += 1
                self._leased += stop - first
                first = stop
            self._partitions[each.partition] = replace(each, first=first)
        return pieces


def describe_gone(name: str, gone: OffsetRange) -> str:
    """What a person is told of offsets that nobody can read any more."""
    return (
        f"offsets {gone.first} to {gone.stop - 1} of partition {gone.partition!r} are gone, and dataset {name!r} has "
        "not used them: the source keeps records for less long than the job took. Keep them for longer; "
        'stream(lost="skip") counts such offsets and goes on'
    )


def _length(offsets: OffsetRange | None) -> int:
    return offsets.stop - offsets.first if offsets else 0
