"""What must hold of a job's data whatever happens: each record counts once.

Kept like `invariants.py`, which tells it what happens: from every revision of a ledger in the store, from what masters
answer and workers are told, and from what scripts train on, save and write. Of the product it takes what is on the
wire and in the store, and what a place of a dataset stands for (`Layout`); never a decision.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from elastic_run.master.data.ledger import DONE, Answer, Owner, Piece, Position, Request, State
from elastic_run.master.data.stored_ledger import read
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.store.contract import Event

from .data import Model, layout
from .script import Worker

if TYPE_CHECKING:
    from .invariants import Checker
    from .world import World

Asker = tuple[str, int, int, int, int]
"""Dataset, round, rank, part, and the number of the request."""


@dataclass(eq=False)
class _Book:
    """One ledger, from its first revision until its key is removed.

    Attributes:
        accepted: by shard index, the workers that were told that what they had done of it counts.
        given: by the round for which a process was started, its rank and its part: what it was answered that it has.
        outputs: shard indices of which an output was written.
    """

    key: str
    state: State
    accepted: dict[int, list[Worker]] = field(default_factory=dict[int, list[Worker]])
    given: dict[tuple[int, int, int], set[int]] = field(default_factory=dict[tuple[int, int, int], set[int]])
    outputs: set[int] = field(default_factory=set[int])


class Books:
    """Watches the data of one world."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        self._keys = world.keys
        self._layout = layout(world.shape)
        self._books: dict[str, _Book] = {}  # by dataset
        self._answers: dict[Asker, list[Answer]] = {}  # that the store has held
        self._cuts: dict[tuple[str, int, int], list[Position | None]] = {}  # by dataset, round and number
        self._begun: dict[tuple[str, int], list[Position | None]] = {}  # origins, by dataset and round
        self._restored: dict[tuple[str, int], list[Position | None]] = {}  # by run and round
        self._finals: dict[tuple[str, int], Model] = {}  # by run and round

    # -- the store's history --------------------------------------------------------------------------------------

    def on_ledger(self, key: str, event: Event) -> None:
        """A ledger was written or removed."""
        prefix = self._keys.queues if key.startswith(self._keys.queues) else self._keys.ledgers
        name = unquote(key.removeprefix(prefix))
        book = self._books.get(name)
        if event.kind == "delete":
            header = self._checker.last_header
            if prefix == self._keys.queues and not (header and header.state == "succeeded"):
                self._violated("only a success removes a queue", f"{key} was removed")
            self._books.pop(name, None)
            return
        state = read(event.kv.value)
        if book is None:
            book = self._books[name] = _Book(key, state)
        else:
            self._check_forward(book.state, state)
        if state.dataset.tracking == "ack":
            self._check_outputs(book, state)
            self._check_continuing(book.state, state)
        self._check_holders(book, state)
        book.state = state
        self._check_once(state)
        self._remember(name, state)
        self._tell(state)
        self._world.count("leased")

    def _check_forward(self, old: State, new: State) -> None:
        """Nothing that was durable is taken back."""
        if old.run != new.run:
            return
        if new.round < old.round:
            self._violated(
                "a worker of an old round changes nothing", f"the ledger went from {old.round} to {new.round}"
            )
        if new.round != old.round:
            return
        sequences = {(owner.rank, owner.part): owner.sequence for owner in new.owners}
        ended = new.ends > old.ends  # what a worker had that has ended by itself is taken back, and it with it
        least = {
            (owner.rank, owner.part): 0 if not (ended and owner.leases) else owner.sequence for owner in old.owners
        }
        back = [
            owner for owner in old.owners if sequences.get(who := (owner.rank, owner.part), least[who]) < owner.sequence
        ]
        if back or new.cuts < old.cuts or (old.begun and new.frontier < old.frontier):
            self._violated("a ledger does not go back", f"{old} became {new}")
        elif old.begun and (again := _open(new, old.frontier) - _open(old)):
            self._violated("what is done stays done", f"shard indices {sorted(again)}")

    def _check_continuing(self, old: State, new: State) -> None:
        """Who continues in a new round, and has asked for nothing meanwhile, has what it had, or it is done."""
        now = {_who(owner, new): owner for owner in new.owners}
        for owner in old.owners if old.run == new.run and new.round > old.round else ():
            round, rank, _ = _who(owner, old)
            first, kept = self._checker.first_round(rank), now.get(_who(owner, old))
            if not 0 < first <= round < new.round or (kept and kept.sequence != owner.sequence):
                continue
            had, has = ({each.shard_index for each in one.leases} if one else set[int]() for one in (owner, kept))
            if taken := (had - has) & _open(new):
                self._violated("a worker that continues keeps its shards", f"rank {rank} had {sorted(taken)}: {new}")

    def _check_holders(self, book: _Book, state: State) -> None:
        """Who has a shard was answered that it has it, and is in the job."""
        header = self._checker.last_header
        for owner in state.owners:
            round, rank, _ = who = _who(owner, state)
            given = book.given.setdefault(who, set())
            given.update(piece.shard_index for piece in (owner.answer.leases if owner.answer else ()))
            has = {piece.shard_index for piece in owner.leases}
            if has - given:
                self._violated("a worker has no shard that it was not given", f"rank {rank}: {sorted(has - given)}")
            current = header is not None and (header.run, header.number) == (state.run, state.round)
            if current and header.state == "open" and has and not 0 < self._checker.first_round(rank) <= round:
                self._violated("what a lost worker had comes back", f"rank {rank} of round {round} has {sorted(has)}")

    def _check_outputs(self, book: _Book, new: State) -> None:
        """A shard counts as done when its output is there."""
        done = {shard_index for shard_index in range(new.frontier) if shard_index not in _open(new)}
        if missing := done - book.outputs:
            self._violated("a shard is done when its output is written", f"shard indices {sorted(missing)} have none")
        done_before = {
            shard_index for shard_index in range(book.state.frontier) if shard_index not in _open(book.state)
        }
        if again := done_before - done:
            self._violated("what is done stays done", f"shard indices {sorted(again)}")

    def _check_once(self, state: State) -> None:
        """A shard is leased to one rank at a time, or where it is written out, to two different ones."""
        held: dict[int, list[int]] = {piece.shard_index: [-1] for piece in state.returned}
        for owner in state.owners:
            for piece in owner.leases:
                held.setdefault(piece.shard_index, []).append(owner.rank)
        most = 2 if state.dataset.tracking == "ack" else 1
        for shard_index, ranks in held.items():
            alone = len(ranks) == 1 or -1 not in ranks
            if len(ranks) > most or len(set(ranks)) < len(ranks) or not alone or shard_index >= state.frontier:
                self._violated(
                    "a shard is leased to one rank", f"place {shard_index} has {ranks} (-1: waits for anybody)"
                )
        if len({piece.shard_index for piece in state.returned}) < len(state.returned):
            self._violated("a shard is leased to one rank", f"{state.returned} would be leased twice")

    def _remember(self, name: str, state: State) -> None:
        for owner in state.owners:
            if owner.answer is None:
                continue
            round, rank, part = _who(owner, state)
            answers = self._answers.setdefault((name, round, rank, part, owner.sequence), [])
            if owner.answer not in answers:
                answers.append(owner.answer)
        self._cuts.setdefault((name, state.round, state.cuts), []).append(state.cut)
        if state.begun or state.dataset.tracking == "ack":
            self._begun.setdefault((name, state.round), []).append(state.origin)

    def _tell(self, state: State) -> None:
        words = [f"from shard index {state.frontier} on nobody had any"]
        if state.returned:
            words.append(f"{_shard_indices(state.returned)} came back")
        words += [f"rank {owner.rank} has {_shard_indices(owner.leases)}" for owner in state.owners if owner.leases]
        self._world.say("store", f"ledger of round {state.round}: {'; '.join(words)}")

    # -- what masters answer, and workers are told ----------------------------------------------------------------

    def on_answer(self, owner: str, request: Request, answer: Answer, began: float) -> None:
        """A master, on an agent, has answered what it was asked at `began`."""
        if answer.kind not in ("ok", "refused"):
            return
        if not self._checker.led(owner, began):
            self._violated("a deposed master answers nothing", f"{owner} answered {request} with {answer}")
        if answer.kind == "ok":
            self._check_known(request, answer)

    def on_told(self, worker: Worker, request: Request, answer: Answer) -> None:
        """A worker has its answer."""
        match answer.kind:
            case "ok":
                self._check_known(request, answer)
                self._accept(worker, request, answer)
            case "stale" if not self._checker.is_over(worker):
                self._violated("only workers of an old round are told so", f"{worker.name}: {answer.text}")
            case "refused" if not (_left_early(worker) or len(self._restored.get((worker.run, worker.round), [])) > 1):
                self._violated("a valid request is not refused", f"{worker.name}: {answer.text}")
            case _:
                pass

    def _check_known(self, request: Request, answer: Answer) -> None:
        """The store has held the answer, as that of this very request."""
        name, round = request.name, request.round
        if request.kind == "open":
            begun = self._begun.get((name, round), [])
            if (book := self._books.get(name)) and book.state.dataset.tracking == "ack":
                begun = [None]
            known = request.restored in begun
        else:
            asker = name, round, request.rank, request.part, request.sequence
            known = replace(answer, position=None) in self._answers.get(asker, [])
            if request.kind == "cut":
                known = known and answer.position in self._cuts.get((name, round, request.cut), [])
        if not known:
            self._violated("what a worker is told a successor knows", f"{request} was answered {answer}")

    def _accept(self, worker: Worker, request: Request, answer: Answer) -> None:
        book = self._books.get(request.name)
        if book is None or book.state.dataset.tracking != "ack" or self._checker.is_over(worker):
            return
        for mark in request.marks:
            if mark.offset == DONE and mark.shard_index not in answer.lost:
                accepted = book.accepted.setdefault(mark.shard_index, [])
                if worker not in accepted:
                    accepted.append(worker)
                if len(accepted) > 1:
                    names = ", ".join(each.name for each in accepted)
                    self._violated("every shard has one accepted output", f"place {mark.shard_index}: {names}")

    # -- what scripts do ------------------------------------------------------------------------------------------

    def on_restored(self, worker: Worker, position: Position | None) -> None:
        """A worker has loaded a checkpoint, or none."""
        positions = self._restored.setdefault((worker.run, worker.round), [])
        if position not in positions:
            positions.append(position)

    def on_cut(self, worker: Worker, model: Model, position: Position) -> None:
        """A worker has a position for its checkpoint."""
        if len(self._restored.get((worker.run, worker.round), [])) > 1:
            self._violated("ranks train on what all of them have restored", worker.name)
        todo = {piece.shard_index: piece.offset for piece in position.todo}
        expected: dict[tuple[int, int], int] = {}
        for shard_index in range(position.frontier):
            span = self._layout.span(shard_index)
            for record in self._layout.indices(span)[: todo.get(shard_index, len(span))]:
                expected[span.epoch, record] = 1
        if model != expected:
            wrong = sorted(record for record in {*model, *expected} if model.get(record) != expected.get(record))
            self._violated("a position says what the model holds", f"{worker.name}: {position}; wrong for {wrong}")

    def on_trained(self, worker: Worker, model: Model) -> None:
        """A group is out of shards."""
        self._finals[worker.run, worker.round] = model

    def on_output(self, worker: Worker, shard_index: int) -> None:
        """An output is written."""
        for book in self._books.values():
            book.outputs.add(shard_index)

    def on_success(self, header: Header, round: int) -> None:
        """The job has succeeded with that round."""
        shape = self._world.shape
        # In a job with roles workers of earlier rounds may have ended, and their nodes continue.
        rounds = range(round + 1) if shape.roles else (round,)
        workers = [each for each in self._world.workers if each.run == header.run and each.round in rounds]
        if not shape.data or self._checker.went_early(workers):
            return
        if shape.data == "checkpoint":
            model = self._finals.get((header.run, round), {})
            wanted = {(epoch, record): 1 for epoch in range(shape.epochs) for record in range(shape.records)}
            if model != wanted:
                wrong = sorted(record for record in wanted if model.get(record) != 1)
                self._violated("every record is in the model once", f"not so {wrong}")
            return
        for book in self._books.values():
            done = {shard_index for shard_index in range(book.state.frontier) if shard_index not in _open(book.state)}
            if done != set(range(self._layout.shards * shape.epochs)):
                self._violated("every shard has one accepted output", f"{book.state} at the success")

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)


def _open(state: State, frontier: int | None = None) -> set[int]:
    """Shard indices before the frontier that are not done; those before another one, where it is given."""
    pieces = [*state.returned, *(piece for owner in state.owners for piece in owner.leases)]
    return {piece.shard_index for piece in pieces if frontier is None or piece.shard_index < frontier}


def _who(owner: Owner, state: State) -> tuple[int, int, int]:
    return owner.round or state.round, owner.rank, owner.part


def _shard_indices(pieces: tuple[Piece, ...]) -> str:
    return ", ".join(f"{piece.shard_index}{f' (from {piece.offset})' if piece.offset else ''}" for piece in pieces)


def _left_early(worker: Worker) -> bool:
    """A rank that trained with it has ended as if the job were done, and will never do what it waits for."""
    group = worker.group
    return group is not None and any(mate.ended is not None and mate.ended[0] == 0 for mate in group.workers.values())
