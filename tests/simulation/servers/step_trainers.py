"""Ranks of synchronous training: rounds that break at any point, and workers that prepare steps and apply them.

What a process group does is told in short: a collective is over when all ranks of the round have come to it, and where
the round breaks meanwhile, it may be over for some of them and not for others.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from elastic_run.adapters.servers.requests import (
    ApplyStep,
    OpenTable,
    PrepareGradients,
    PushSource,
    Reply,
    StepShare,
    WorkerRequest,
)
from elastic_run.adapters.servers.slot_sets import SlotSet
from elastic_run.adapters.servers.specs import TableSpec
from elastic_run.adapters.servers.step_recovery import RowPosition, settle_steps
from elastic_run.adapters.servers.tables import Tables, apply_parts, find_parts
from elastic_run.master.servers.slot_table import SLOTS, SlotTable

from .server_process import Array
from .trainers import COUNT, DATASET, Records, Trainer, Wait, primaries_of, slots_of

StepKey = tuple[int, int, int, int]
"""Epoch, begin, end and round."""


class RoundBroken(Exception):
    """A collective is not over, and will not be."""


class StepRefused(Exception):
    """A server says that records are another's, or not prepared."""


@dataclass(slots=True)
class StepRound:
    """One process group.

    Attributes:
        number: of the round.
        members: in the order of ranks.
        batch: records of a rank and step.
        arrived: by collective, who has come to it.
        claims: by member, its last committed position.
        broken: a member is lost, or another comes.
    """

    number: int
    members: tuple["StepTrainer", ...]
    batch: int
    arrived: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    claims: dict[str, RowPosition | None] = field(default_factory=dict[str, "RowPosition | None"])
    broken: bool = False


class StepTeam:
    """All workers of the job.

    Attributes:
        round: the last that was formed.
        file: the position of the script's checkpoint.
        decided: the furthest that no rank can undo.
        over: everything is committed.
        rows_from: the last round that was opened to go back.
        file_abandoned: the job has gone back since the script's checkpoint was written: rows may be older.
    """

    def __init__(self, records: Records, chance: random.Random) -> None:
        self.round = StepRound(0, (), 1, broken=True)
        self.file: RowPosition = 0, 0
        self.decided: RowPosition = 0, 0
        self.over = False
        self.rows_from = 0
        self.file_abandoned = False
        self.epochs, self.length, _ = records.ids.shape
        self._records = records
        self._random = chance
        self._present: list[StepTrainer] = []
        self._prepared: dict[StepKey, dict[int, tuple[Array, Array]]] = {}
        self._complete: list[tuple[StepKey, SlotSet]] = []  # in their order, and the slots whose rows have them
        self._marks = np.zeros((self.epochs, SLOTS), np.int64)  # what these make

    def join(self, trainer: "StepTrainer") -> None:
        """It wants to be in the next round."""
        self._present.append(trainer)
        self._form_later(trainer)

    def lose(self, trainer: "StepTrainer") -> None:
        """Nobody hears of it any more, whether it lives or not."""
        if trainer in self._present:
            self._present.remove(trainer)
            self._form_later(trainer)

    def has(self, trainer: "StepTrainer") -> bool:
        """It is not given up."""
        return trainer in self._present

    def _form_later(self, trainer: "StepTrainer") -> None:
        self.round.broken = True
        number = self.round.number

        def form() -> None:
            if self.round.number == number and self._present:
                members = [*self._present]
                self._random.shuffle(members)
                self.round = StepRound(number + 1, tuple(members), self._random.randint(1, 4))

        trainer.network.timeline.after(self._random.uniform(0.01, 0.2), form)

    def meet(self, trainer: "StepTrainer", of: StepRound, name: str) -> Wait:
        """One collective. Raises RoundBroken."""
        arrived = of.arrived.setdefault(name, set())
        arrived.add(trainer.name)
        while len(arrived) < len(of.members):
            if of.broken:
                raise RoundBroken
            yield 0.01
        yield from trainer.pause(self._random.uniform(0.0, 0.03))
        if of.broken and self._random.random() < 0.5:
            raise RoundBroken

    def follow(self, position: RowPosition, epoch: int, end: int) -> RowPosition:
        """The position when the records before `end` are done."""
        return (epoch + 1, 0) if end == self.length else max(position, (epoch, end))

    # -- what the rows must be ----------------------------------------------------------------------------------------

    def note_prepared(self, key: StepKey, rank: int, ids: Array, model: Array) -> None:
        """A rank wants that."""
        self._prepared.setdefault(key, {})[rank] = ids, model

    def note_complete(self, key: StepKey) -> None:
        """All ranks have prepared it; where the rows have it, they keep what they have."""
        epoch, begin, end, _ = key
        new = self._marks[epoch] == begin
        if new.any():
            self._marks[epoch, new] = end
            self._complete.append((key, new))

    def note_settled(self, furthest: RowPosition) -> None:
        """What was prepared beyond that is dropped."""
        self._keep_steps(lambda epoch, end: np.full(SLOTS, self.follow((0, 0), epoch, end) <= furthest))

    def go_back(self, round: int, marks: Array) -> None:
        """Gives up all workers of before that round. The rows have these marks of a checkpoint, (epochs, SLOTS)."""
        self._present.clear()
        self.rows_from = round
        self.round.broken = True
        self.over, self.file_abandoned = False, True
        self._keep_steps(lambda epoch, end: marks[epoch] >= end)
        if (self._marks != marks).any():
            raise AssertionError("a checkpoint has steps that nobody has decided")
        self.decided = max(
            self.follow((0, 0), epoch, int(mark)) for epoch in range(self.epochs) for mark in np.unique(marks[epoch])
        )

    def _keep_steps(self, stays: Callable[[int, int], SlotSet]) -> None:
        """Those that stay in the rows of some slots, by their epoch and end, there."""
        kept: list[tuple[StepKey, SlotSet]] = []
        for key, slots in reversed(self._complete):
            epoch, begin, end, _ = key
            stay = slots & stays(epoch, end)
            self._marks[epoch, slots & ~stay] = begin
            if stay.any():
                kept.append((key, stay))
        self._complete = kept[::-1]

    def train_alone(self) -> dict[int, bytes]:
        """The rows of the table `model` of a process that does the same steps by itself, by id."""
        tables = Tables(1 << 24)
        tables.open_table(self._records.model)
        assert (self._marks == self.length).all(), "all is decided"
        for key, slots in sorted(self._complete, key=lambda each: each[0]):
            self._apply_alone(tables, self._records.model, key, slots)
        arrays, _ = tables.find_table("model").copy_piece(0, np.ones(SLOTS, np.bool_), 1 << 16)
        return {int(each): b"".join(part[at].tobytes() for part in arrays[1:]) for at, each in enumerate(arrays[0])}

    def _apply_alone(self, tables: Tables, spec: TableSpec, key: StepKey, slots: SlotSet) -> None:
        summed: dict[int, Array] = {}
        for _, (ids, model) in sorted(self._prepared[key].items()):
            for number, gradient in zip(ids.tolist(), model, strict=True):
                summed[number] = summed.get(number, np.zeros(spec.columns, np.float32)) + gradient
        ids = np.array(sorted(summed), np.int64)
        ids = ids[slots[slots_of(ids)]]
        gradients = np.array([summed[number] for number in ids.tolist()], np.float32).reshape(-1, spec.columns)
        apply_parts(find_parts(tables.read_push(("model",), (ids, gradients), np.ones(SLOTS, np.bool_))), True, at=0)


class StepTrainer(Trainer):
    """A rank.

    Args:
        team: of which it is.
        rest: as `Trainer` takes it.

    Attributes:
        position: the last that it has committed; None: none.
    """

    def __init__(self, team: StepTeam, *rest: Any, may_be_full: bool) -> None:  # Any: of several types
        self._team = team
        self.position: RowPosition | None = None
        self._refusable = False
        super().__init__(*rest, may_be_full=may_be_full)
        team.join(self)

    def pause(self, seconds: float) -> Wait:
        """See `Trainer`."""
        yield from self._pause(seconds)

    def refuse(self, reply: Reply) -> None:
        if reply.refused == "records" and (self._refusable or not self._team.has(self)):
            raise StepRefused
        super().refuse(reply)

    def _train(self) -> Wait:
        for spec in (self._records.count, self._records.model):
            yield from self._ask_all(lambda version, spec=spec: OpenTable(spec, version))
        last: StepRound | None = None
        while not self._team.over:
            of = self._team.round
            if not self._team.has(self):
                if self.round >= self._team.rows_from:
                    return
                yield 0.05  # until its agent ends it
                continue
            if of is last or of.broken or self not in of.members:
                yield 0.02
                continue
            last = of
            try:
                yield from self._train_in(of)
            except RoundBroken:
                self.pushing = False
            except StepRefused:
                if self.round >= self._team.rows_from:
                    return

    def _ask_all(self, request: Callable[[int], WorkerRequest]) -> Wait:
        answers: Mapping[int, tuple[Reply, list[Array]]] = yield from self._ask_servers(
            lambda table: {at: (request(table.version), ()) for at in primaries_of(table)}
        )
        return sorted({mark for reply, _ in answers.values() for mark in reply.marks})

    def _train_in(self, of: StepRound) -> Wait:
        team = self._team
        of.claims[self.name] = self.position
        yield from team.meet(self, of, "claims")
        claimed = [claim for claim in of.claims.values() if claim is not None]
        chosen, abandoned = max(claimed, default=team.file), not claimed and team.file_abandoned
        if not abandoned:
            self.position = chosen
        yield from team.meet(self, of, "agreed")
        marks: list[RowPosition] = yield from self._settle(of, chosen)
        rows, furthest = (team.follow((0, 0), *marks[at]) for at in (0, -1))
        self.position = chosen = min(chosen, rows) if abandoned else chosen
        team.decided = max(team.decided, chosen)
        if rows < chosen:
            self._fail("what is committed is in the rows", f"{self.name} continues at {chosen}, and rows at {rows}")
        if furthest > team.decided:
            self._fail("what is undone is not in the rows", f"some are at {furthest}, and ranks at {team.decided}")
        while self.position[0] < team.epochs:
            epoch, begin = self.position
            cuts = [mark for at, mark in marks if at == epoch and mark > begin]
            end = min(begin + of.batch * len(of.members), team.length, *cuts, team.length)
            yield from self._make_step(of, epoch, begin, end)
        yield from team.meet(self, of, "over")
        team.over = True
        for piece in self._ledger.pieces:
            piece.done = True

    def _settle(self, of: StepRound, chosen: RowPosition) -> Wait:
        asking = settle_steps(DATASET, of.number, chosen)
        question = next(asking)
        while True:
            self._refusable = isinstance(question, ApplyStep)
            found = list[int]()
            try:
                found = yield from self._ask_all(lambda version, asked=question: replace(asked, version=version))
            except StepRefused:
                if not self._refusable:
                    raise
            self._refusable = False
            try:
                question = asking.send(found)
            except StopIteration as stop:
                self._team.note_settled(max(chosen, self._team.follow((0, 0), *stop.value[-1])))
                return stop.value

    def _make_step(self, of: StepRound, epoch: int, begin: int, end: int) -> Wait:
        team, world, rank = self._team, len(of.members), of.members.index(self)
        key = epoch, begin, end, of.number
        source = PushSource(DATASET, epoch, of.number, begin, end, at=int(1000 * self.network.timeline.now))
        first, after = (begin + (end - begin) * at // world for at in (rank, rank + 1))
        ids, counts = self._records.merge(epoch, first, after)
        model = self._records.gradients(epoch, first, after, ids)
        team.note_prepared(key, rank, ids, model)
        yield from self._pause(self._random.uniform(0.0, self._records.pace))
        if self._random.random() < 0.5:
            yield from self._pull(ids)
        self.pushing = True
        arrays = ids, -counts.astype(np.float32)[:, None], ids, model
        yield from self._ask_servers(lambda table: self._split(table, source, StepShare(rank, world), arrays))
        yield from team.meet(self, of, f"prepared {key}")
        team.note_complete(key)
        self.position = team.follow((0, 0), epoch, end)
        yield from team.meet(self, of, f"committed {key}")
        team.decided = max(team.decided, self.position)
        yield from self._ask_all(lambda version: ApplyStep(DATASET, epoch, of.number, end, version))
        self.pushing = False
        self._acknowledged(self, source)
        if rank == 0 and self._random.random() < 0.2:
            team.file, team.file_abandoned = self.position, False

    def _split(
        self, table: SlotTable, source: PushSource, share: StepShare, arrays: Sequence[Array]
    ) -> dict[int, tuple[WorkerRequest, Sequence[Array]]]:
        primary = np.asarray(table.primary)[slots_of(arrays[0])]
        request = PrepareGradients((COUNT.name, self._records.model.name), source, share, table.version)
        return {at: (request, [each[primary == at] for each in arrays]) for at in primaries_of(table)}
