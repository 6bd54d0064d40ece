"""What a simulated script does with leased data: its workers ask their agents, train or write outputs, and save.

Two scripts. `Trainers`, of tracking mode "checkpoint": all ranks of a group step together, each on records that it
leased; every few steps they make a cut, and rank 0 saves the model with that position, which the next round restores.
The model is how often it was trained on each record. `Writers`, of tracking mode "ack": workers that know nothing of
each other write one output for each shard, and say so.

A worker here is a process that asks and is called when there is an answer; whatever it has lies in its `Leaser`.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.master.data.ledger import DONE, Answer, Mark, Piece, Position, Request, Tracking
from elastic_run.master.data.shard import Layout

from .schedule import Shape
from .script import Group, Worker

NAME = "train"

BATCH = 2
"""Records that one rank trains on in one step."""

AGAIN = 0.03
"""How many answers are lost on their way to the script, which then asks the same again."""

EARLY = 0.2
"""How often a worker that has enough leased ahead asks for more."""

GIVES_BACK = 0.1
"""How many requests give back a shard that was leased ahead, where there is one."""

SLOW = 0.08
"""How many outputs take SLOWER times as long as others."""

SLOWER = 8.0

Record = tuple[int, int]
"""Epoch, and number of the record in the data."""

Model = Mapping[Record, int]
"""How often it was trained on each."""


def layout(shape: Shape) -> Layout:
    """Of the job's dataset."""
    return Layout(NAME, shape.records, shape.shard, epochs=shape.epochs)


class Ground(Protocol):
    """What these scripts need of the world."""

    chance: random.Random

    @property
    def now(self) -> float:
        """World time, seconds."""
        ...

    def after(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        """Calls it later, in the world's own context."""
        ...

    def say(self, who: str, line: str) -> None:
        """Into the trace."""
        ...

    def count(self, what: str) -> None:
        """One more of `what`, which faults may wait for."""
        ...

    def ask(self, worker: Worker, call: Call, then: Callable[[Back], object]) -> None:
        """The worker asks its agent; `then` is called with the answer, while the worker lives."""
        ...

    def told(self, worker: Worker, request: Request, answer: Answer) -> None:
        """A worker has an answer."""
        ...

    def told_current(self, worker: Worker, asked_at: float) -> None:
        """A worker was told that its round is the current one."""
        ...

    def restored(self, worker: Worker, position: Position | None) -> None:
        """A worker has loaded the last checkpoint, with that position, or there was none."""
        ...

    def has_cut(self, worker: Worker, model: Model, position: Position) -> None:
        """A worker has the position that belongs to its model."""
        ...

    def trained(self, worker: Worker, model: Model) -> None:
        """The ranks of that worker's group are all out of shards."""
        ...

    def wrote(self, worker: Worker, shard_index: int) -> None:
        """An output is written."""
        ...


class Crew(Protocol):
    """What these scripts need of the one that they are a part of."""

    def end(self, worker: Worker, code: int | None, number: int | None, message: str = "") -> None:
        """The worker's process ends."""
        ...

    def whole(self, group: Group) -> bool:
        """A collective of all of them can be done now."""
        ...

    def finish(self, group: Group) -> None:
        """They have done their work."""
        ...

    def succeed(self, worker: Worker) -> None:
        """It has done its work."""
        ...


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint: the model, and what it was not trained on."""

    model: Model
    position: Position


@dataclass(eq=False)
class Leaser:
    """One worker's side of the ledger.

    Attributes:
        queue: what it has, the first of it in work.
        marks: by shard index, what is done and was not said.
        asked: a request is on its way.
        ended: there are no more shards for it.
        cutting: it waits for a position; `cut_due`: once its request is answered.
        writes: checkpoints that it is writing.
    """

    worker: Worker
    sequence: int = 0
    cuts: int = 0
    queue: list[Piece] = field(default_factory=list[Piece])
    marks: dict[int, int] = field(default_factory=dict[int, int])
    asked: bool = False
    ended: bool = False
    working: bool = False
    cutting: bool = False
    cut_due: bool = False
    writes: int = 0


@dataclass(eq=False)
class _Training:
    """One group at work. With `aside`, it trains on while a checkpoint is being written."""

    group: Group
    model: dict[Record, int]
    leasers: list[Leaser]
    aside: bool
    steps: int = 0
    stepping: bool = False
    last: bool = False  # the cut after the last step


class _Asking:
    """What both scripts do with the ledger."""

    def __init__(self, ground: Ground, crew: Crew, shape: Shape, tracking: Tracking) -> None:
        self._ground = ground
        self._crew = crew
        self._shape = shape
        self._layout = layout(shape)
        self._dataset = self._layout.dataset(tracking)
        self._record = 1.5 * shape.work / (shape.records * shape.epochs)  # seconds

    def _request(self, leaser: Leaser) -> Request:
        told = leaser.worker.environment  # what a process is told as it is started does not change
        return Request("exchange", NAME, *(int(told[name]) for name in ("ELASTIC_RUN_ROUND", "RANK", "WORLD_SIZE")))

    def _open(self, leaser: Leaser, restored: Position | None, then: Callable[[Answer], object]) -> None:
        request = replace(self._request(leaser), kind="open", dataset=self._dataset, restored=restored)
        self._ask(leaser.worker, request, then)

    def _exchange(self, leaser: Leaser, wants: int, then: Callable[[Answer], object]) -> None:
        release: tuple[int, ...] = ()
        if len(leaser.queue) > 1 and self._ground.chance.random() < GIVES_BACK:
            release = (leaser.queue.pop().shard_index,)
        request = replace(self._numbered(leaser), release=release, wants=wants)
        leaser.asked = True
        self._ask(leaser.worker, request, partial(self._take, leaser, then))

    def _numbered(self, leaser: Leaser) -> Request:
        leaser.sequence += 1
        marks = tuple(Mark(shard_index, offset) for shard_index, offset in leaser.marks.items())
        leaser.marks.clear()
        return replace(self._request(leaser), sequence=leaser.sequence, marks=marks)

    def _take(self, leaser: Leaser, then: Callable[[Answer], object], answer: Answer) -> None:
        leaser.asked = False
        leaser.queue = [piece for piece in leaser.queue if piece.shard_index not in answer.lost]
        for shard_index in answer.lost:  # it was told too late
            leaser.marks.pop(shard_index, None)
        leaser.queue += answer.leases
        leaser.ended |= answer.ended
        then(answer)

    def _ask(self, worker: Worker, request: Request, then: Callable[[Answer], object]) -> None:
        call = Call("ledger", request.round, request)
        self._ground.ask(worker, call, partial(self._answered, worker, request, then))

    def _answered(self, worker: Worker, request: Request, then: Callable[[Answer], object], back: Back) -> None:
        answer = back.answer or Answer("later", back.text)
        self._ground.told(worker, request, answer)
        match answer.kind:
            case "ok" if self._ground.chance.random() >= AGAIN:
                then(answer)
            case "ok" | "later":
                self._ask(worker, request, then)
            case "stale":
                self._crew.end(worker, 1, None, f"elastic_run.RoundOver: {answer.text}")
            case "refused":
                self._crew.end(worker, 1, None, f"elastic_run.Refused: {answer.text}")


class Trainers(_Asking):
    """Groups that train together; what is saved lies on storage that all machines share, and outlives the job."""

    def __init__(self, ground: Ground, crew: Crew, shape: Shape) -> None:
        super().__init__(ground, crew, shape, "checkpoint")
        self.saved: Saved | None = None

    def begin(self, group: Group) -> None:
        """They have met: each restores, opens, trains."""
        leasers = [Leaser(worker) for _, worker in sorted(group.workers.items())]
        training = _Training(group, {}, leasers, aside=self._ground.chance.random() < 0.5)
        for leaser in leasers:
            self._ground.after(self._ground.chance.uniform(0.0, 0.3), self._restore, training, leaser)

    def _restore(self, training: _Training, leaser: Leaser) -> None:
        worker, saved = leaser.worker, self.saved
        if worker.ended:
            return
        if worker.paused:
            self._ground.after(0.25, self._restore, training, leaser)
            return
        if worker.rank == 0 and saved:
            training.model.update(saved.model)
        restored = saved.position if saved else None
        self._ground.restored(worker, restored)
        self._open(leaser, restored, partial(self._opened, training, leaser))

    def _opened(self, training: _Training, leaser: Leaser, _: Answer) -> None:
        self._lease(training, leaser)

    def _lease(self, training: _Training, leaser: Leaser) -> None:
        if leaser.asked or leaser.cutting or leaser.cut_due or leaser.ended or training.group.broken:
            return
        if len(leaser.queue) < 2 or self._ground.chance.random() < EARLY:
            self._exchange(leaser, self._ground.chance.choice((1, 1, 2)), partial(self._leased, training, leaser))

    def _leased(self, training: _Training, leaser: Leaser, _: Answer) -> None:
        if leaser.cut_due:
            self._cut(training, leaser)
        self._try_step(training)

    def _try_step(self, training: _Training) -> None:
        leasers = training.leasers
        if training.group.broken or training.stepping or any(one.cutting or one.cut_due for one in leasers):
            return
        if any(one.writes for one in leasers) and (training.last or not training.aside):
            return
        if not all(one.queue or one.ended for one in leasers):
            return
        if any(one.queue for one in leasers):
            training.stepping = True
            self._ground.after(BATCH * self._record * self._ground.chance.uniform(0.8, 1.2), self._step, training)
        elif not training.last:
            training.last = True
            self._cut_all(training)
        else:
            self._ground.trained(leasers[0].worker, training.model)
            self._crew.finish(training.group)

    def _step(self, training: _Training) -> None:
        """One collective step: whoever has records trains on some, and all replicas of the model are alike again."""
        if training.group.broken:
            return
        if not self._crew.whole(training.group):
            self._ground.after(0.5, self._step, training)
            return
        training.stepping = False
        training.steps += 1
        for leaser in training.leasers:
            if leaser.queue:
                self._train(training.model, leaser)
        if training.steps % self._shape.every == 0:
            self._cut_all(training)
            return
        for leaser in training.leasers:
            self._lease(training, leaser)
        self._try_step(training)

    def _train(self, model: dict[Record, int], leaser: Leaser) -> None:
        piece = leaser.queue[0]
        span = self._layout.span(piece.shard_index)
        records = self._layout.indices(span, piece.offset)[:BATCH]
        for record in records:
            model[span.epoch, record] = model.get((span.epoch, record), 0) + 1
        offset = piece.offset + len(records)
        leaser.marks[piece.shard_index] = DONE if offset == len(span) else offset
        if offset == len(span):
            del leaser.queue[0]
        else:
            leaser.queue[0] = replace(piece, offset=offset)

    # -- checkpoints

    def _cut_all(self, training: _Training) -> None:
        for leaser in training.leasers:
            leaser.cut_due = True
        for leaser in training.leasers:
            if not leaser.asked:
                self._cut(training, leaser)

    def _cut(self, training: _Training, leaser: Leaser) -> None:
        leaser.cut_due, leaser.cutting = False, True
        request = replace(self._numbered(leaser), kind="cut", cut=leaser.cuts + 1, step=training.steps)
        self._ask(leaser.worker, request, partial(self._has_cut, training, leaser))

    def _has_cut(self, training: _Training, leaser: Leaser, answer: Answer) -> None:
        leaser.cutting = False
        leaser.cuts += 1
        assert answer.position is not None, "an ok to a cut has it"
        self._ground.has_cut(leaser.worker, training.model, answer.position)
        if leaser.worker.rank == 0:
            leaser.writes += 1
            self._save(training, leaser, Saved(dict(training.model), answer.position))
        self._lease(training, leaser)
        self._try_step(training)

    def _save(self, training: _Training, leaser: Leaser, saved: Saved) -> None:
        """Writes it beside the last one, and then in its place, where the round is still the current one."""
        seconds = self._ground.chance.choice((0.001, 0.02, 0.2))
        self._ground.after(seconds, self._replace, training, leaser, saved)

    def _replace(self, training: _Training, leaser: Leaser, saved: Saved) -> None:
        worker = leaser.worker
        if worker.ended:
            return
        if worker.paused:
            self._ground.after(0.25, self._replace, training, leaser, saved)
        elif self._shape.guard:
            then = partial(self._guarded, training, leaser, saved, self._ground.now)
            self._ground.ask(worker, Call("current", worker.round), then)
        else:
            self._written(training, leaser, saved)

    def _guarded(self, training: _Training, leaser: Leaser, saved: Saved, asked_at: float, back: Back) -> None:
        if back.current:
            self._ground.told_current(leaser.worker, asked_at)
        self._written(training, leaser, saved if back.current else None)

    def _written(self, training: _Training, leaser: Leaser, saved: Saved | None) -> None:
        if saved is not None:
            self.saved = saved  # at once, as a rename is
            words = f"round {leaser.worker.round} saves a model of {sum(saved.model.values())} records"
            self._ground.say("script", words)
            self._ground.count("saved")
        leaser.writes -= 1
        self._try_step(training)


class Writers(_Asking):
    """Workers that write outputs, one for each shard, and say so."""

    def __init__(self, ground: Ground, crew: Crew, shape: Shape) -> None:
        super().__init__(ground, crew, shape, "ack")

    def begin(self, worker: Worker) -> None:
        """It runs: open, lease, write."""
        leaser = Leaser(worker)
        self._open(leaser, None, partial(self._go_on, leaser))

    def _go_on(self, leaser: Leaser, _: Answer | None = None) -> None:
        if not leaser.working and leaser.queue:
            leaser.working = True
            piece = leaser.queue[0]
            slower = SLOWER if self._ground.chance.random() < SLOW else 1.0
            seconds = len(self._layout.span(piece.shard_index)) * self._record * slower
            self._ground.after(seconds * self._ground.chance.uniform(0.8, 1.2), self._output, leaser, piece)
        if leaser.asked:
            return
        if leaser.marks or not (leaser.queue or leaser.ended):
            wants = 0 if leaser.ended else max(0, self._ground.chance.choice((1, 2, 3)) - len(leaser.queue))
            self._exchange(leaser, wants, partial(self._go_on, leaser))
        elif not leaser.queue and not leaser.working:
            self._crew.succeed(leaser.worker)

    def _output(self, leaser: Leaser, piece: Piece) -> None:
        worker = leaser.worker
        if worker.ended:
            return
        if worker.paused:
            self._ground.after(0.25, self._output, leaser, piece)
            return
        leaser.working = False
        self._ground.wrote(worker, piece.shard_index)
        if piece in leaser.queue:  # else another was faster, and this one was told
            leaser.queue.remove(piece)
            leaser.marks[piece.shard_index] = DONE
        self._go_on(leaser)
