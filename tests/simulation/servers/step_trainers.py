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
    """

    def __init__(self, records: Records, chance: random.Random) -> None:
        self.round = StepRound(0, (), 1, broken=True)
        self.file: RowPosition = 0, 0
        self.decided: RowPosition = 0, 0
        self.over = False
        self.epochs, self.length, _ = records.ids.shape
        self._records = records
        self._random = chance
        self._present: list[StepTrainer] = []
        self._prepared: dict[StepKey, dict[int, tuple[Array, Array]]] = {}
        self._complete: dict[tuple[int, int], StepKey] = {}
        self._settled: RowPosition = 0, 0

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
        if self.follow((0, 0), key[0], key[2]) > self._settled:
            self._complete[key[0], key[2]] = key

    def note_settled(self, furthest: RowPosition) -> None:
        """What was prepared beyond that is dropped."""
        self._settled = furthest
        self._complete = {at: key for at, key in self._complete.items() if self.follow((0, 0), *at) <= furthest}

    def train_alone(self) -> dict[int, bytes]:
        """The rows of the table `model` of a process that does the same steps by itself, by id."""
        tables = Tables(1 << 24)
        tables.open_table(self._records.model)
        for epoch in range(self.epochs):
            begin = 0
            while begin < self.length:
                ends = [key for at, key in self._complete.items() if at[0] == epoch and key[1] == begin]
                key = min(ends, key=lambda key: key[2])
                self._apply_alone(tables, self._records.model, key)
                begin = key[2]
        arrays, _ = tables.find_table("model").copy_piece(0, np.ones(SLOTS, np.bool_), 1 << 16)
        return {int(each): b"".join(part[at].tobytes() for part in arrays[1:]) for at, each in enumerate(arrays[0])}

    def _apply_alone(self, tables: Tables, spec: TableSpec, key: StepKey) -> None:
        summed: dict[int, Array] = {}
        for _, (ids, model) in sorted(self._prepared[key].items()):
            for number, gradient in zip(ids.tolist(), model, strict=True):
                summed[number] = summed.get(number, np.zeros(spec.columns, np.float32)) + gradient
        ids = np.array(sorted(summed), np.int64)
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
                return
            if of is last or of.broken or self not in of.members:
                yield 0.02
                continue
            last = of
            try:
                yield from self._train_in(of)
            except RoundBroken:
                self.pushing = False
            except StepRefused:
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
        chosen = max((claim for claim in of.claims.values() if claim is not None), default=team.file)
        self.position = chosen
        yield from team.meet(self, of, "agreed")
        marks: list[RowPosition] = yield from self._settle(of, chosen)
        team.decided = max(team.decided, chosen)
        rows, furthest = (team.follow((0, 0), *marks[at]) for at in (0, -1))
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
            team.file = self.position

    def _split(
        self, table: SlotTable, source: PushSource, share: StepShare, arrays: Sequence[Array]
    ) -> dict[int, tuple[WorkerRequest, Sequence[Array]]]:
        primary = np.asarray(table.primary)[slots_of(arrays[0])]
        request = PrepareGradients((COUNT.name, self._records.model.name), source, share, table.version)
        return {at: (request, [each[primary == at] for each in arrays]) for at in primaries_of(table)}
