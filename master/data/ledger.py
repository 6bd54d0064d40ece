"""Which shards of a dataset go to whom, what is done, and what comes back when a worker is lost (pure).

A dataset is cut into shards. Its epochs, each in an order of its own, make one long line. The *shard index* p is shard
`order(p // shards)[p % shards]`, which every process works out for itself (`shard.py`). So the ledger of a dataset is

    frontier   no shard from here on was ever leased
    returned   pieces before it that nobody has and that are not done: what lost workers had
    leases     pieces before it that a worker has
    (done      every other shard before the frontier; nothing is stored for those)

and its size follows from the number of workers, not of shards. A *piece* is a shard index and how many of its records
are done: a lease gives the rest.

Whose word counts is the dataset's *tracking mode*:

  - "checkpoint": what is in the model counts, and the model is what the ranks restore. A round begins with the
    position that all its ranks have restored (or with none); ranks that differ are refused before the first lease. A
    *cut* is the position at one step: every rank asks for it at the same point of its script, and waits until all
    have, so what each has marked until then is exactly what the model holds. What comes after it dies with the round.
  - "ack": the output lies elsewhere, one piece of it for each shard, and a shard is done when its worker has said so. A
    round changes nothing for workers that continue; what the others had and had not acknowledged is leased anew. When
    nothing else is left, a shard that another worker is slow with is leased a second time: the first of the two to
    acknowledge it has done it, and the other's lease is void.

A worker is known by its rank and by the round for which it was started: no two processes have both, and one that is
started anew inherits nothing. Its requests are numbered, and the last answer is kept: a request that is asked again, of
this master or the next, has no second effect. `Ledger.answer` gives the answer, or None while it has to wait for
others; the caller makes the ledger's `state` durable before it passes any answer on, so no successor can lease a shard
twice.

Invariants: a shard before the frontier is done, returned or leased, and only one of these; it has one lease, or in
tracking mode "ack" two of different ranks; no request changes what another worker did, nor does a round change what a
worker has that continues; a shard becomes done once.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass, field, replace

Tracking = Literal["checkpoint", "ack"]

VERSION = 3
"""Of `State`, in the store."""

POSITION_VERSION = 1
"""Of `Position`, in users' checkpoints."""

DONE = -1
"""As a mark's offset: all records of the piece."""

MAX_WANTED = 1024
"""Leases in one answer."""

SLOW = 1.5
"""Times the mean seconds of a shard: a lease that has been worked on for longer may be given to a second worker."""

NO_PACE = 5.0
"""Seconds that stand for the mean while no shard has been done under this master."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Of a stream: the offsets of `partition` from `first` to the one before `stop`; there may be gaps among them."""

    partition: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """How a stream is used; see `elastic_run.data.stream`."""

    follow: bool = True
    start: Literal["earliest", "latest"] = "earliest"
    lost: Literal["fail", "skip"] = "fail"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a script declares; equal on every rank.

    Attributes:
        name: one ledger for each, in a job.
        size: records in an epoch.
        shard_size: records in a shard; the last one of a file or of the dataset may have fewer.
        shards: in an epoch.
        epochs: how often each record is used.
        shuffle, seed: the order, see `shard.py`.
        tracking: whose word counts.
        files: a digest of the files' names and lengths; empty where there are none.
        alone: no shard is leased to a second worker, whose work would count: its gradients go to servers.
        stream: it has no end, or one that is not known yet, and a ledger of its own: `stream_ledger.py`.
    """

    name: str
    size: int
    shard_size: int
    shards: int
    epochs: int = 1
    shuffle: bool = True
    seed: int = 0
    tracking: Tracking = "checkpoint"
    files: str = ""
    alone: bool = False
    stream: StreamTerms | None = None

    @property
    def total(self) -> int:
        """Shards in all epochs."""
        return self.epochs * self.shards


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """What is not done of one shard.

    Attributes:
        shard_index: of which.
        offset: records of it, from its beginning, that are done.
        returned: how often a lost worker was at it.
        offsets: what the shard is, of a stream; `offset` counts in them then.
    """

    shard_index: int
    offset: int = 0
    returned: int = 0
    offsets: OffsetRange | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """What a model has not been trained on: every shard from `frontier` on (or `partitions`), and `todo` before it."""

    frontier: int = 0
    todo: tuple[Piece, ...] = ()
    partitions: tuple[OffsetRange, ...] = ()
    leased: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A worker has done the first `offset` records of a shard, or DONE; of a stream, `lost` offsets of it were gone."""

    shard_index: int
    offset: int = DONE
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker asks. Its `sequence` is 1 for an owner's first, and one more with each; asked again, the same.

    Attributes:
        kind: "open": declares the dataset, and the position that was restored. "exchange": marks what is done, gives
            back what is not wanted any more, and wants leases. "cut": marks, and wants the position of all ranks.
        name: the dataset's.
        round, rank, world: the worker's, as it was started with.
        part: which process of that rank: 0 is the script's own, which alone opens and cuts; an owner is (rank, part).
        sequence: of the owner; "open" has none.
        dataset: what is declared ("open").
        restored: the position that was loaded; None: none was ("open").
        marks: what is done; of any piece that a process of this rank has a lease of.
        release: shard indices that this rank gives back.
        wants: leases wanted at most; 0: none.
        cut: 1 for the first cut in this round, and so on.
        step: what the script calls the cut, compared between ranks.
        known: of a stream, the offsets that each partition has now.
    """

    kind: Literal["open", "exchange", "cut"]
    name: str
    round: int
    rank: int
    world: int
    part: int = 0
    sequence: int = 0
    dataset: Dataset | None = None
    restored: Position | None = None
    marks: tuple[Mark, ...] = ()
    release: tuple[int, ...] = ()
    wants: int = 0
    cut: int = 0
    step: int = 0
    known: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker gets.

    Attributes:
        kind: "ok". "later": nothing yet, and why; ask the same again. "stale": its round is over. "refused": what it
            asks cannot be, and why.
        text: why.
        leases: the rest of each piece is this owner's to do, in this order.
        lost: shard indices that it had and that others have done.
        ended: there will be no more leases for it in this round.
        position: of the cut.
        lease: of these leases, where the dataset is `alone`: a shard's next one in another process has a higher number.
        floors: with leases of a stream that is `alone`: of each partition, offsets that are never leased again.
    """

    kind: Literal["ok", "later", "stale", "refused"] = "ok"
    text: str = ""
    leases: tuple[Piece, ...] = ()
    lost: tuple[int, ...] = ()
    ended: bool = False
    position: Position | None = None
    lease: int = 0
    floors: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """One process that leases.

    Attributes:
        rank, part: who.
        sequence: its last request.
        answer: what that was answered; None while it waits. A position is left out of it: it is `State.cut`.
        leases: what it has, in the order in which it works on them.
        lost: shard indices of which it has not been told yet that others have done them.
        round: for which it was started; 0: `State.round`.
    """

    rank: int
    part: int
    sequence: int = 0
    answer: Answer | None = None
    leases: tuple[Piece, ...] = ()
    lost: tuple[int, ...] = ()
    round: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """All that a successor needs, as it lies in the store (JSON, `wire.encode`); see docs/ledger.md.

    Attributes:
        version: of this form.
        dataset: as declared.
        round: the job's; who is not in it any more has no leases.
        begun: every rank of the round has opened it alike (tracking mode "checkpoint"); see `stream_ledger.py`, too.
        origin: that position.
        frontier, returned, owners: see above.
        cuts, step, cut: how many there were in this round; of the last one, and its position.
        run: of which run of the job (`Header.run`) `round` is; kept as it is here.
        ends: how often leases came back within a round, because their worker had ended.
        partitions, leased, lost, origins: see `stream_ledger.py`.
    """

    version: int
    dataset: Dataset
    round: int = 0
    begun: bool = False
    origin: Position | None = None
    frontier: int = 0
    returned: tuple[Piece, ...] = ()
    owners: tuple[Owner, ...] = ()
    cuts: int = 0
    step: int = 0
    cut: Position | None = None
    run: str = ""
    ends: int = 0
    partitions: tuple[OffsetRange, ...] = ()
    leased: int = 0
    lost: int = 0
    origins: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the workers are with one dataset.

    Attributes:
        name, tracking: see `Dataset`.
        shards, done, leased: in all epochs; how many of them are done, and how many workers have; the others wait.
        seconds_left: until all are done, at the pace of the workers that have leases; None where that is not known.
        records: that are done in all epochs; where files differ in length, as many as they have in the mean.
        lag, lost: offsets of a stream that are known and not done; those that were gone before anybody had read them.
    """

    name: str
    tracking: Tracking
    shards: int
    done: int
    leased: int
    seconds_left: float | None = None
    records: int = 0
    lag: int | None = None
    lost: int = 0


@dataclass(slots=True)
class _Worker:
    """An owner in memory; `head_since` is when it began with the first of its leases (the caller's clock)."""

    rank: int
    part: int
    round: int
    sequence: int = 0
    answer: Answer | None = None
    leases: dict[int, Piece] = field(default_factory=dict[int, Piece])
    lost: tuple[int, ...] = ()
    head_since: float = 0.0


@dataclass(frozen=True, slots=True)
class _End:
    """What idle workers look at when nothing is left to lease; made once for all of them, until something changes.

    Attributes:
        leased: somebody has something.
        waiting: with whose rank it is, each piece that waits in a queue and has one lease; the last in its queue first.
        heads: since when it is worked on, and by which rank, each other piece that has one lease; the oldest first.
    """

    leased: bool
    waiting: tuple[tuple[int, Piece], ...]
    heads: tuple[tuple[float, int, Piece], ...]


class Ledger:
    """The ledger of one dataset.

    Args:
        state: from the store, or `fresh(dataset)`.
        now: the caller's clock, seconds; only differences of it are used.

    Attributes:
        changed: something has changed since this was last set to False.
    """

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._frontier: int = state.frontier
        self._returned = sorted(state.returned)
        self._workers: dict[int, dict[int, _Worker]] = {}  # by rank and part
        self._twice: set[int] = set()  # shards that two ranks have
        self._pace: float | None = None
        self._opened: dict[int, Request] = {}  # by rank, while the round has not begun
        self._votes: dict[int, Request] = {}  # by rank, for the next cut
        self._end_known: _End | None = None
        self.changed = False
        once: set[int] = set()
        for owner in state.owners:
            leases = {piece.shard_index: piece for piece in owner.leases}
            round = owner.round or state.round
            worker = _Worker(owner.rank, owner.part, round, owner.sequence, owner.answer, leases, owner.lost, now)
            self._workers.setdefault(owner.rank, {})[owner.part] = worker
            self._twice |= once & leases.keys()
            once |= leases.keys()

    # -- what it holds --------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Dataset:
        """As declared."""
        return self._state.dataset

    @property
    def _leases_once(self) -> bool:
        return self.dataset.tracking != "ack" or self.dataset.alone

    @property
    def round(self) -> int:
        """The job's, as of the last request or turn."""
        return self._state.round

    @property
    def state(self) -> State:
        """What is to be made durable before an answer is passed on."""
        return replace(
            self._state,
            frontier=self._frontier,
            returned=tuple(self._returned),
            owners=tuple(
                Owner(
                    one.rank,
                    one.part,
                    one.sequence,
                    one.answer,
                    tuple(one.leases.values()),
                    one.lost,
                    0 if one.round == self.round else one.round,
                )
                for one in self._all
            ),
        )

    @property
    def position(self) -> Position:
        """What is not done: the returned and the leased pieces, and every shard from the frontier on."""
        rest = {piece.shard_index: piece for piece in self._returned}
        for worker in self._all:
            rest.update(worker.leases)
        return Position(self._frontier, tuple(replace(rest[shard_index], returned=0) for shard_index in sorted(rest)))

    @property
    def progress(self) -> Progress:
        """How far it is."""
        dataset = self.dataset
        leased = len({shard_index for one in self._all for shard_index in one.leases})
        done = self._frontier - len(self._returned) - leased
        workers = sum(1 for one in self._all if one.leases)
        left = 0.0 if done == dataset.total else None
        if left is None and self._pace is not None and workers:
            left = (dataset.total - done) * self._pace / workers
        begun = [*self._returned, *(piece for one in self._all for piece in one.leases.values())]
        records = done * dataset.size // max(1, dataset.shards) + sum(piece.offset for piece in begun)
        return Progress(dataset.name, dataset.tracking, dataset.total, done, leased, left, records)

    @property
    def finished(self) -> bool:
        """Every shard is done."""
        return not self._returned and self._frontier >= self.dataset.total and not self._end.leased

    @property
    def troubled(self) -> tuple[Piece, ...]:
        """Pieces that workers were lost with, most often first."""
        pieces = [*self._returned, *(piece for one in self._all for piece in one.leases.values())]
        return tuple(sorted((piece for piece in pieces if piece.returned), key=lambda piece: -piece.returned))

    @property
    def _all(self) -> Iterator[_Worker]:
        return (parts[part] for _, parts in sorted(self._workers.items()) for part in sorted(parts))

    # -- rounds ---------------------------------------------------------------------------------------------------

    def turn(self, round: int, since: Mapping[int, int] | None = None) -> None:
        """The job is in `round`, a later one: who does not continue is gone.

        Args:
            since: by rank, of workers that continue, for which round they were started at the earliest; None: nobody
                continues, as in another run. In tracking mode "checkpoint" all return to a position.
        """
        if self.dataset.tracking == "ack":
            self._lose([one for one in self._all if since is None or one.round < since.get(one.rank, round)])
        else:
            self._frontier, self._returned, self._workers, self._twice = 0, [], {}, set()
        self._opened, self._votes = {}, {}
        self._state = replace(
            self._state, round=round, begun=False, origin=None, cuts=0, step=0, cut=None, returned=(), owners=()
        )
        self.changed, self._end_known = True, None

    def end_workers(self, ranks: Collection[int]) -> bool:
        """The processes of these ranks have ended by themselves: what they have is leased anew; whether it was any."""
        gone = [each for each in self._all if each.rank in ranks and each.leases]
        if gone:
            self._lose(gone)
            self._state = replace(self._state, ends=self._state.ends + 1)
            self.changed, self._end_known = True, None
        return bool(gone)

    def _lose(self, gone: Sequence[_Worker]) -> None:
        """What they have is leased anew; each was at the first of that."""
        back: dict[int, Piece] = {}
        for worker in gone:
            del self._workers[worker.rank][worker.part]
            for place, piece in enumerate(worker.leases.values()):
                at_it = replace(piece, returned=piece.returned + (place == 0))
                back[piece.shard_index] = max(at_it, back.get(piece.shard_index, at_it))
        for piece in back.values():
            self._return(piece)

    # -- requests -------------------------------------------------------------------------------------------------

    def answer(self, request: Request, now: float, since: int | None = None) -> Answer | None:
        """The answer, or None while it has to wait for others; then ask again after any change, and at `due`.

        Args:
            since: for which round the workers of that rank were started at the earliest; None: the last.
        """
        if request.round > self.round:
            self.turn(request.round)
        parts = self._workers.get(request.rank, {})
        newest = max((each.round for each in parts.values()), default=0)
        checkpoint = self.dataset.tracking == "checkpoint"
        if request.round < (self.round if since is None or checkpoint else max(since, newest)):
            return Answer("stale", f"round {request.round} is over: the job is in round {self.round}")
        self._lose([each for each in parts.values() if each.round < request.round])  # that rank was started anew
        if request.kind == "open":
            return self._open(request)
        if checkpoint and not self._state.begun:
            return Answer("refused", f"dataset {self.dataset.name!r} was not opened in this round")
        worker = parts.get(request.part) or _Worker(request.rank, request.part, request.round)
        if request.sequence == worker.sequence + 1:
            worker.sequence, worker.answer = request.sequence, None
            self._workers.setdefault(request.rank, {})[request.part] = worker
            self._mark(request, now)
            self.changed, self._end_known = True, None
        elif request.sequence != worker.sequence:
            return Answer(
                "refused",
                f"request {request.sequence} of rank {request.rank} arrived after its request {worker.sequence}: do "
                f"two processes use dataset {self.dataset.name!r} as the same rank?",
            )
        if worker.answer is None:
            answer = self._cut(request) if request.kind == "cut" else self._grant(worker, request.wants, now)
            if answer is None or answer.kind != "ok":
                return answer
            lease = (self.round + self._state.ends) * self.dataset.alone
            worker.answer = replace(answer, lost=worker.lost, position=None, lease=lease)
            worker.lost = ()
            self.changed, self._end_known = True, None
        # Ranks that each kept the position, which has a piece for each rank, would fill the store with its square. The
        # next cut waits for this rank, so the last one is still the one that it asks for.
        return replace(worker.answer, position=self._state.cut) if request.kind == "cut" else worker.answer

    def missing(self, request: Request) -> list[int]:
        """The ranks that a request waits for, where `answer` gave None for it."""
        known = {"open": self._opened, "cut": self._votes}.get(request.kind)
        return [] if known is None else [rank for rank in range(request.world) if rank not in known]

    def why(self, request: Request) -> str:
        """In words, what a request waits for that `answer` gave None for."""
        from .ledger_words import describe_wait  # here, because few jobs lease data

        return describe_wait(request, self.missing(request))

    def due(self, now: float) -> float | None:
        """When a waiting exchange may be answered without any change; None: never. In seconds on the caller's clock."""
        if self._leases_once or self._returned or self._frontier < self.dataset.total:
            return None
        moments = [worker.head_since + self._patience for worker in self._all if worker.leases]
        return min((moment for moment in moments if moment > now), default=None)

    # -- opening --------------------------------------------------------------------------------------------------

    def _open(self, request: Request) -> Answer | None:
        from .ledger_words import describe_declarations, describe_positions  # as above

        assert request.dataset is not None, "checked where requests are read"
        if self.dataset.tracking == request.dataset.tracking == "checkpoint" and not (
            self._state.begun or self._opened
        ):
            self._state = replace(self._state, dataset=request.dataset)  # the script may be another than last round
        if difference := describe_declarations(request.dataset, self.dataset):
            advice = "its records were distributed like that before: keep it, or give the new dataset another name"
            if self.dataset.tracking == "checkpoint":
                advice = "declare it alike on every rank"
            return Answer(
                "refused",
                f"dataset {self.dataset.name!r} is declared in two ways: {difference} on rank {request.rank}; {advice}",
            )
        if self.dataset.tracking == "ack":
            return Answer()
        if self._state.begun:
            if request.restored == self._state.origin:
                return Answer()
            return Answer("refused", f"rank {request.rank} has restored another position of {self.dataset.name!r}")
        self._opened[request.rank] = request
        if len(self._opened) < request.world:
            return None
        if text := describe_positions(self._opened):
            return Answer("refused", f"the ranks would not train on the same data of {self.dataset.name!r}: {text}")
        self._begin(request.restored)
        return Answer()

    def _begin(self, restored: Position | None) -> None:
        origin = restored or Position()
        total = self.dataset.total
        self._frontier = min(origin.frontier, total)
        self._returned = sorted(replace(piece, returned=0) for piece in origin.todo if piece.shard_index < total)
        self._state = replace(self._state, begun=True, origin=restored)
        self._opened = {}
        self.changed, self._end_known = True, None

    # -- marks and leases -----------------------------------------------------------------------------------------

    def _mark(self, request: Request, now: float) -> None:
        parts = self._workers[request.rank].values()
        done: Counter[int] = Counter()
        for mark in request.marks:  # in their order, whichever part has the shard: others are told in that order
            for worker in parts if mark.offset == DONE else ():
                if mark.shard_index in worker.leases:
                    self._done(worker, mark.shard_index, now)
                    done[worker.part] += 1
        for worker in parts:
            if done[worker.part]:
                seconds = (now - worker.head_since) / done[worker.part]
                self._pace = seconds if self._pace is None else 0.8 * self._pace + 0.2 * seconds
                worker.head_since = now
            if self.dataset.tracking == "checkpoint":  # an output is of whole shards
                for mark in request.marks:
                    if piece := worker.leases.get(mark.shard_index):
                        worker.leases[mark.shard_index] = replace(piece, offset=max(piece.offset, mark.offset))
            for shard_index in request.release:
                self._release(worker, shard_index, now)

    def _release(self, worker: _Worker, shard_index: int, now: float) -> None:
        if shard_index not in worker.leases:
            return
        if next(iter(worker.leases)) == shard_index:
            worker.head_since = now
        self._return(worker.leases.pop(shard_index))

    def _return(self, piece: Piece) -> None:
        twice = piece.shard_index in self._twice
        self._twice.discard(piece.shard_index)
        for worker in self._all if twice else ():
            if other := worker.leases.get(piece.shard_index):  # the other rank still has it
                worker.leases[piece.shard_index] = max(piece, other)
                return
        insort(self._returned, piece)

    def _done(self, worker: _Worker, shard_index: int, now: float) -> None:
        del worker.leases[shard_index]
        if shard_index not in self._twice:
            return
        self._twice.discard(shard_index)
        for other in self._all:
            if other.leases.pop(shard_index, None):
                other.lost += (shard_index,)
                other.head_since = now

    def _grant(self, worker: _Worker, wants: int, now: float) -> Answer | None:
        if wants <= 0:
            return Answer(ended=self.finished)
        pieces = self._returned[: min(wants, MAX_WANTED)]
        del self._returned[: len(pieces)]
        more = min(min(wants, MAX_WANTED) - len(pieces), self.dataset.total - self._frontier)
        pieces += [Piece(shard_index) for shard_index in range(self._frontier, self._frontier + more)]
        self._frontier += more
        if not pieces:
            if self.dataset.tracking == "checkpoint" or self.finished:
                return Answer(ended=True)
            second = self._second(worker, now)
            if second is None:
                # While it has work of its own it must not wait for others': they may be waiting for that.
                return Answer() if worker.leases else None
            pieces = [second]
            self._twice.add(second.shard_index)
        if not worker.leases:
            worker.head_since = now
        worker.leases.update((piece.shard_index, piece) for piece in pieces)
        return Answer(leases=tuple(pieces))

    # -- slow workers ---------------------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return SLOW * (NO_PACE if self._pace is None else self._pace)

    def _second(self, idle: _Worker, now: float) -> Piece | None:
        """What an idle worker may do a second time: the last that waits in somebody's queue, else what takes long."""
        if self._leases_once or idle.leases:
            return None
        for rank, piece in self._end.waiting:
            if rank != idle.rank:
                return piece
        for since, rank, piece in self._end.heads:
            if now < since + self._patience:  # as `due` says it, or rounding would part them
                return None
            if rank != idle.rank:
                return piece
        return None

    @property
    def _end(self) -> _End:
        if self._end_known is None:
            waiting: list[tuple[int, Piece, int]] = []
            heads: list[tuple[float, int, Piece]] = []
            leased = False
            for worker in self._all:
                for index, piece in enumerate(worker.leases.values()):
                    leased = True
                    if piece.shard_index in self._twice:
                        continue
                    if index:
                        waiting.append((index, piece, worker.rank))
                    else:
                        heads.append((worker.head_since, worker.rank, piece))
            last_first = tuple((rank, piece) for _, piece, rank in sorted(waiting, reverse=True))
            self._end_known = _End(leased, last_first, tuple(sorted(heads)))
        return self._end_known

    # -- cuts -----------------------------------------------------------------------------------------------------

    def _cut(self, request: Request) -> Answer | None:
        state = self._state
        if self.dataset.tracking == "ack":
            return Answer(
                "refused", f"dataset {self.dataset.name!r} keeps its position in the store, and has none to save"
            )
        if request.cut == state.cuts and state.cut is not None:
            return self._at(request, state.step, state.cut)
        if request.cut != state.cuts + 1:
            return Answer(
                "refused",
                f"rank {request.rank} calls state_dict() for the {request.cut}. time in this round, and the other "
                f"ranks have done so {state.cuts} times: call it at the same steps on every rank",
            )
        self._votes[request.rank] = request
        if len(self._votes) < request.world:
            return None
        steps = {vote.step for vote in self._votes.values()}
        if len(steps) > 1:
            by_step = ", ".join(f"rank {rank} at step {vote.step}" for rank, vote in sorted(self._votes.items())[:8])
            return Answer("refused", f"the ranks call state_dict() at different steps: {by_step}")
        self._state = replace(state, cuts=request.cut, step=request.step, cut=self.position)
        self._votes = {}
        self.changed, self._end_known = True, None
        return Answer(position=self._state.cut)

    def _at(self, request: Request, step: int, position: Position) -> Answer:
        if request.step != step:
            return Answer(
                "refused",
                f"rank {request.rank} calls state_dict() at step {request.step}, and the other ranks did so at {step}",
            )
        return Answer(position=position)


def fresh(dataset: Dataset) -> State:
    """Nothing is done, and nobody has anything."""
    return State(VERSION, dataset)


def ledger_of(state: State, now: float) -> Ledger:
    """The ledger of a dataset or of a stream; see `Ledger`."""
    if state.dataset.stream is None:
        return Ledger(state, now)
    from .stream_ledger import StreamLedger  # here, because few jobs have one

    return StreamLedger(state, now)


def named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 2, 5`; only the beginning of a long list."""
    words = ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {words}"
