"""The ledgers of a job's datasets, under one leadership: answers requests, and makes durable what it answers.

`ledger.py` decides. Here requests come in at any time and are applied in the order of their arrival. What came while
the last transaction was on its way is written by the next, all of it at once, and only then is any of it answered: so
a successor, which reads what the store holds, knows every lease that a worker has heard of.

Each transaction compares the leader key, so a deposed master answers nothing: where a batch changes nothing, the
compare is asked alone. And each put compares the value that it replaces, because a late attempt of an earlier put may
still lie in a member of the store that stands still.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from ...rendezvous.base.errors import Deposed
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.election import Leadership
from ...rendezvous.keys import Keys
from ...rendezvous.rpc.envelope import Caller
from ...rendezvous.store.contract import MAX_OPERATIONS, MAX_VALUE_BYTES, Compare, KeyValue, Put, Store
from ...rendezvous.store.limits import MAX_REQUEST_BYTES
from ...rendezvous.store.waits import Waits
from .current_round import Current
from .ledger import Answer, Ledger, Progress, Request, State, Tracking, fresh, ledger_of, named
from .stored_ledger import BadState, read, written

PATIENCE = 10.0
"""Seconds after which a request that waits is told why, and to ask again."""

LEDGERS = "what workers lease of the job's datasets"
"""What may wait for the store."""

OFTEN = 3
"""Rounds that have ended with a worker at one shard, from which on a person is told."""

_PER_TXN = (MAX_OPERATIONS - 1) // 2
_KEY_BYTES = 128
"""For the framing of one key's compare and put, at most."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request.

    Attributes:
        caller: who asks.
        answer: once it is durable; None: this master gives none.
        met: since it came, this master has proven that it leads.
        tried: it was applied.
        decided: there is an answer, which is not durable yet.
    """

    request: Request
    caller: Caller
    answer: "asyncio.Future[Answer | None]"
    met: bool = False
    tried: bool = False
    decided: bool = False

    def give(self, answer: Answer | None) -> None:
        if not self.answer.done():  # who asked may have gone
            self.answer.set_result(answer)


@dataclass(eq=False, slots=True)
class _Entry:
    """One dataset.

    Attributes:
        key: where it lies in the store.
        revision: the key's mod revision as it was last read or written; 0: there is no such key.
        value: what lies there.
        ledger: None where nobody has opened the dataset in this run.
        trouble: why it cannot be used; empty where it can.
        due: when what waits for it may be answered without any change (the caller's clock).
    """

    key: str
    revision: int = 0
    value: bytes = b""
    ledger: Ledger | None = None
    trouble: str = ""
    due: float | None = None


class Ledgers:
    """Answers while `run` runs. Nothing is read from the store before the first request.

    Args:
        store, keys: where the job is.
        leadership: what every transaction compares.
        current: the round that the job is in, None where this master does not know yet.
        say: prints one line for a person.
        now: the clock, seconds.
        waits: what waits for the store on this node.
        ended: the ranks of that round whose workers have ended with exit code 0.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        leadership: Leadership,
        current: Callable[[], Current | None],
        *,
        say: Callable[[str], None],
        now: Callable[[], float],
        waits: Waits,
        ended: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self._store = store
        self._keys = keys
        self._leadership = leadership
        self._current = current
        self._ended_ranks = ended
        self._say = say
        self._now = now
        self._waits = waits
        self._waiting: list[_Waiting] = []  # in order of arrival
        self._entries: dict[str, _Entry] | None = None  # by name; None: not read yet
        self._news = asyncio.Event()
        self._ended = False

    def serves(self, run: str) -> bool:
        """Whether these are the ledgers of that run of the job."""
        current = self._current()
        return current is not None and current.run == run

    @property
    def progress(self) -> tuple[Progress, ...]:
        """How far the workers are with each dataset; a master that no worker has asked yet knows of none."""
        return tuple(entry.ledger.progress for entry in self._known if entry.ledger)

    def look(self) -> None:
        """The round, or who has ended in it, may have changed."""
        self._news.set()

    async def find_left(self, reads: bool) -> str:
        """See `describe_left`; `reads`: the store, where nobody has asked this master. Raises StoreRefused."""
        if (current := self._current()) is None:
            return ""
        entries = await self._read(current.run) if reads and self._entries is None else self._entries or {}
        self._turn(entries, entries, current)
        from .left_shards import describe_left  # here: loaded after the workers have begun

        return describe_left(entry.ledger.state for entry in entries.values() if entry.ledger)

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """The answer, once it is durable; "later" after PATIENCE. Raises Deposed where this master has ended."""
        from .ledger_requests import check_request  # here, because a job without leased data needs none of that
        from .shard import unfit_name

        if wrong := check_request(request) or unfit_name(request.name):
            return Answer("refused", wrong)
        waiting = _Waiting(request, caller, asyncio.get_running_loop().create_future())
        if not self._ended:
            self._waiting.append(waiting)
            self.look()
            try:
                await asyncio.wait({waiting.answer}, timeout=PATIENCE)
                if not waiting.answer.done():
                    return Answer("later", self._why(waiting))
                if answer := waiting.answer.result():
                    return answer
            finally:
                waiting.answer.cancel()
        raise Deposed("the master on this node has stopped")

    async def run(self) -> None:
        """Serves until it is cancelled. Raises Deposed when another master leads, StoreRefused."""
        try:
            while True:
                self._news.clear()
                await self._serve()
                if not self._news.is_set():
                    moments = [entry.due for entry in self._known if entry.due is not None]
                    await self._wait(min(moments, default=None))
        finally:
            self._ended = True
            for waiting in self._waiting:
                waiting.give(None)

    async def _wait(self, until: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(0.0, until - self._now())):
                await self._news.wait()

    @property
    def _known(self) -> Iterable[_Entry]:
        return (self._entries or {}).values()

    def _why(self, waiting: _Waiting) -> str:
        request, current = waiting.request, self._current()
        if current is None or request.round > current.round:
            return f"the job's master does not know round {request.round} yet"
        if not current.running:
            return "the job is suspended"
        entry = (self._entries or {}).get(request.name)
        if entry is None or entry.ledger is None or not waiting.tried or waiting.decided:
            return f"the store has not answered the job's master for {PATIENCE:g} s"
        return entry.ledger.why(request)

    # -- one batch ------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Applies what is new, and answers all that can be answered now, with one transaction.

        What is new and has no answer yet takes one as well: a master that is deposed and does not know it would let
        it wait for ranks that ask another.
        """
        self._waiting = [waiting for waiting in self._waiting if not waiting.answer.done()]
        current = self._current()
        if current is None:
            return
        ready: list[_Waiting] = []
        for waiting in self._waiting:
            round = waiting.request.round
            if round < current.earliest(waiting.caller.incarnation):
                waiting.give(Answer("stale", f"round {round} is over: the job is in round {current.round}"))
            elif round <= current.round and current.running:
                if waiting.caller.incarnation not in current.incarnations:
                    waiting.give(Answer("stale", _not_in_it(waiting.caller, current)))
                elif waiting.request.rank not in current.ranks.get(waiting.caller.incarnation, range(1 << 53)):
                    waiting.give(Answer("refused", _another_rank(waiting, current)))
                elif round < current.round or waiting.request.world == current.world:
                    ready.append(waiting)
                else:  # for so many ranks the ledgers would wait, and look through all of them
                    waiting.give(Answer("refused", _another_world(waiting.request, current)))
        if ready and self._entries is None:
            self._entries = await self._read(current.run)
            self.look()  # the round may be another by now
            return
        new = [waiting for waiting in self._waiting if not waiting.met]
        entries = {} if self._entries is None else self._entries
        given = self._apply(entries, ready, current)
        waits = [waiting for waiting in ready if waiting not in given and waiting.request.kind != "exchange"]
        if waits and (ended := self._ended_ranks()):
            for waiting in waits:
                if text := _in_vain(entries, waiting.request, ended):
                    given[waiting] = Answer("refused", text)
                    waiting.decided = True
        if not given and not new:
            return
        changed, too_large = self._changed(entries, current.run)
        for batch in _batches(changed) if changed else [()]:
            await self._write_batch(batch)
        for waiting in new:
            waiting.met = True
        for waiting, answer in given.items():
            if waiting.request.name not in too_large:
                waiting.give(answer)
        for waiting in ready:
            if text := too_large.get(waiting.request.name):
                waiting.give(Answer("refused", text))

    def _apply(self, entries: dict[str, _Entry], ready: Sequence[_Waiting], current: Current) -> dict[_Waiting, Answer]:
        """Applies what is new; then what waited for it, as long as there is an answer in it for somebody."""
        now = self._now()
        touched = {name for name, entry in entries.items() if entry.due is not None and entry.due <= now}
        touched |= {waiting.request.name for waiting in ready if not waiting.tried}
        touched |= self._turn(entries, {waiting.request.name for waiting in ready}, current)
        given: dict[_Waiting, Answer] = {}

        def tries(some: Iterable[_Waiting]) -> list[_Waiting]:
            for waiting in some:
                waiting.tried = True
                if answer := self._decide(entries, waiting, current, now):
                    given[waiting] = answer
                    waiting.decided = True
            return [waiting for waiting in ready if waiting.request.name in touched and waiting not in given]

        before: list[_Waiting] = []
        rest = tries([waiting for waiting in ready if not waiting.tried])
        while rest and len(rest) != len(before):
            before, rest = rest, tries(rest)
        waits = {waiting.request.name for waiting in rest}
        for name in touched & entries.keys():
            ledger = entries[name].ledger
            entries[name].due = ledger.due(now) if ledger and name in waits else None
        return given

    def _turn(self, entries: Mapping[str, _Entry], names: Iterable[str], current: Current) -> set[str]:
        """Returns what workers had that are gone since the last round, or have ended; of which datasets that was."""
        since = {rank: each for i, each in current.since.items() for rank in current.ranks.get(i, ())}
        turned: set[str] = set()
        for name in names:
            ledger = entries[name].ledger if name in entries else None
            if ledger and ledger.round < current.round:
                before = _often(ledger)
                if ledger.dataset.alone and ledger.round < current.rows_from:
                    # As in a run that begins anew: servers know what is in their rows, and workers pass that over.
                    state = ledger.state
                    begun = replace(fresh(state.dataset), run=current.run, ends=state.ends, origins=state.origins)
                    ledger = entries[name].ledger = ledger_of(begun, self._now())
                ledger.turn(current.round, since)
                self._say_often(ledger, before)
                turned.add(name)
            if ledger and ledger.end_workers(self._ended_ranks()):
                turned.add(name)
        return turned

    def _decide(self, entries: dict[str, _Entry], waiting: _Waiting, current: Current, now: float) -> Answer | None:
        request, name, since = waiting.request, waiting.request.name, current.earliest(waiting.caller.incarnation)
        entry = entries.get(name)
        if entry and entry.trouble:
            return Answer("refused", entry.trouble)
        ledger = entry.ledger if entry else None
        if request.kind == "open":
            assert request.dataset is not None, "it was checked"
            key = self._key(name, request.dataset.tracking)
            if ledger is None:
                if entry is None or entry.key != key:
                    entry = entries[name] = _Entry(key)
                assert entry is not None
                ledger = entry.ledger = ledger_of(replace(fresh(request.dataset), run=current.run), now)
                ledger.turn(current.round)
            elif ledger.dataset.tracking != request.dataset.tracking:
                return Answer(
                    "refused",
                    f"dataset {name!r} is tracked by {ledger.dataset.tracking!r} in this job, and by "
                    f"{request.dataset.tracking!r} on rank {request.rank}: give one of them another name",
                )
        if ledger is None:
            return Answer("refused", f"dataset {name!r} was not opened in this round")
        return ledger.answer(request, now, since)

    def _say_often(self, ledger: Ledger, before: set[int]) -> None:
        for piece in ledger.troubled:
            if piece.returned >= OFTEN and piece.shard_index not in before:
                self._say(
                    f"{piece.returned} rounds ended while a worker was processing shard {piece.shard_index} of dataset "
                    f"{ledger.dataset.name!r}: does a record in that shard crash the worker?"
                )

    # -- the store ------------------------------------------------------------------------------------------------

    def _key(self, name: str, tracking: Tracking) -> str:
        return self._keys.queue(name) if tracking == "ack" else self._keys.ledger(name)

    async def _read(self, run: str) -> dict[str, _Entry]:
        """What the store holds. Raises StoreRefused."""
        entries: dict[str, _Entry] = {}
        for prefix in (self._keys.ledgers, self._keys.queues):
            for item in await self._list(prefix):
                name = unquote(item.key.removeprefix(prefix))
                other = entries.get(name)
                entry = entries[name] = _Entry(item.key, item.mod_revision, item.value)
                if other and other.ledger:
                    entry.trouble = f"the store holds a ledger of dataset {name!r} in {other.key} and in {entry.key}"
                else:
                    self._take(entry, name, run)
        return entries

    async def _list(self, prefix: str) -> tuple[KeyValue, ...]:
        return (await self._waits.until_answered(LEDGERS, lambda: self._store.list(prefix))).items

    def _take(self, entry: _Entry, name: str, run: str) -> None:
        """Makes the entry's ledger what lies in the store."""
        entry.ledger = None
        if not entry.value:
            return
        try:
            state: State = read(entry.value)
        except BadState as error:
            entry.trouble = (
                f"the ledger of dataset {name!r} cannot be read ({error}): give the dataset another name, or remove "
                f"the key {entry.key} from the store, and what is done with it"
            )
            return
        if state.run == run:
            entry.ledger = ledger_of(state, self._now())
        elif state.dataset.tracking == "ack" and not state.dataset.alone:  # tables end with their run
            # Rounds of another run are numbered by themselves: nobody of that run has anything any more.
            entry.ledger = ledger = ledger_of(replace(state, run=run), self._now())
            before = _often(ledger)
            ledger.turn(0)
            self._say_often(ledger, before)

    def _changed(self, entries: dict[str, _Entry], run: str) -> tuple[list[tuple[_Entry, bytes]], dict[str, str]]:
        """What is to be written; and of which datasets that is too much, in words: those are as they were before."""
        changed: list[tuple[_Entry, bytes]] = []
        too_large: dict[str, str] = {}
        for name, entry in list(entries.items()):
            if (ledger := entry.ledger) is None or not ledger.changed:
                continue
            value = written(ledger.state)
            if len(value) > MAX_VALUE_BYTES:
                too_large[name] = (
                    f"the leases of dataset {name!r} take {len(value)} bytes in the store, and "
                    f"{MAX_VALUE_BYTES} fit: lease fewer shards ahead, or larger ones"
                )
                self._take(entry, name, run)
            elif value != entry.value:
                changed.append((entry, value))
            else:
                ledger.changed = False
        return changed, too_large

    async def _write_batch(self, batch: Sequence[tuple[_Entry, bytes]]) -> None:
        """Writes; with nothing to write, proves that this master still leads. Raises Deposed, StoreRefused."""
        compares = [self._leadership.fence, *(Compare(entry.key, entry.revision, "mod") for entry, _ in batch)]
        puts = [Put(entry.key, value) for entry, value in batch]
        result = await self._waits.until_answered(LEDGERS, lambda: self._store.txn(compares, puts, idempotent=True))
        revisions = [result.revision] * len(batch)
        if not result.succeeded:
            leader, *current = result.current
            if why := self._leadership.over(leader):
                raise Deposed(why)
            # It holds what was to be written where an attempt was applied whose answer was lost.
            held = [item for item in current if item is not None]
            if [item.value for item in held] != [value for _, value in batch]:
                raise Deposed("another process changed the job's ledgers")
            revisions = [item.mod_revision for item in held]
        for (entry, value), revision in zip(batch, revisions, strict=True):
            entry.value, entry.revision = value, revision
            if entry.ledger:
                entry.ledger.changed = False


def _not_in_it(caller: Caller, current: Current) -> str:
    return (
        f"node {caller.node} is not in round {current.round}, or was in it before its agent registered again: "
        "what its workers had is leased to others"
    )


def _another_rank(waiting: _Waiting, current: Current) -> str:
    has = current.ranks[waiting.caller.incarnation]
    return (
        f"node {waiting.caller.node} asks for rank {waiting.request.rank}, and has the ranks {has.start} to "
        f"{has.stop - 1} of round {current.round}: a worker may only ask for its own"
    )


def _another_world(request: Request, current: Current) -> str:
    return (
        f"rank {request.rank} has WORLD_SIZE {request.world}, but round {request.round} has {current.world} workers: "
        "leave WORLD_SIZE as elastic-run has set it"
    )


def _in_vain(entries: dict[str, _Entry], request: Request, ended: frozenset[int]) -> str:
    """Why a request that waits for other ranks would wait for ever, in words; empty where it would not."""
    entry = entries.get(request.name)
    missing = entry.ledger.missing(request) if entry and entry.ledger else []
    gone = sorted(ended.intersection(missing))
    if not gone:
        return ""
    what = "open" if request.kind == "open" else "call state_dict() of"
    return (
        f"rank {request.rank} waits for {named(gone)}, which exited with code 0 and will never {what} dataset "
        f"{request.name!r} at this point: every rank must do so, at the same steps"
    )


def _often(ledger: Ledger) -> set[int]:
    return {piece.shard_index for piece in ledger.troubled if piece.returned >= OFTEN}


def _batches(changed: Sequence[tuple[_Entry, bytes]]) -> Iterator[Sequence[tuple[_Entry, bytes]]]:
    """As many as one transaction takes."""
    batch: list[tuple[_Entry, bytes]] = []
    size = 0
    for entry, value in changed:
        more = len(value) + 4 * len(entry.key) + _KEY_BYTES
        if batch and (len(batch) == _PER_TXN or size + more > MAX_REQUEST_BYTES - 10_000):
            yield batch
            batch, size = [], 0
        batch.append((entry, value))
        size += more
    if batch:
        yield batch
