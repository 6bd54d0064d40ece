"""Leases, cuts and lost workers: a twin that keeps every record in a list; transcripts (`tests/transcripts/ledger`)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastic_run.master.data.ledger import (
    DONE,
    MAX_WANTED,
    VERSION,
    Answer,
    Dataset,
    Ledger,
    Mark,
    Owner,
    Piece,
    Position,
    Request,
    State,
    Tracking,
    fresh,
)
from elastic_run.master.data.ledger_requests import check_request
from elastic_run.master.data.stored_ledger import BadState, read, written

from ....sampling import examples
from ....transcripts.runner import Command, replay, transcripts

RECORDS = 3
"""In each shard of the twin's datasets."""

Owned = tuple[int, int]
"""Rank and part."""


# -- the twin ---------------------------------------------------------------------------------------------------------


class Worker:
    """One process of the twin: what it last asked and was answered, and what it believes to have."""

    def __init__(self, rank: int, part: int) -> None:
        self.owner: Owned = (rank, part)
        self.sequence = 0
        self.request: Request | None = None
        self.answer: Answer | None = None
        self.offsets: dict[int, int] = {}

    @property
    def waits(self) -> bool:
        return self.request is not None and self.answer is None


class Jobs(RuleBasedStateMachine):
    """A job's workers, who ask in any order, and one ledger, whose every answer is worked out from lists.

    `used` holds the records that are done, `queues` who has which shard indices. In tracking mode "checkpoint", `used`
    is what the model has seen: a restore brings back what it was at that cut.
    """

    @initialize(
        tracking=st.sampled_from(["checkpoint", "ack"]),
        shards=st.integers(1, 7),
        epochs=st.integers(1, 3),
        world=st.integers(1, 4),
        parts=st.integers(1, 2),
        hurry=st.booleans(),
    )
    def begin(self, tracking: Tracking, shards: int, epochs: int, world: int, parts: int, hurry: bool) -> None:
        self.dataset = Dataset("data", shards * RECORDS, RECORDS, shards, epochs, tracking=tracking)
        self.now = 0.0
        self.ledger = Ledger(fresh(self.dataset), self.now)
        self.used: Counter[tuple[int, int]] = Counter()
        self.trouble: Counter[int] = Counter()
        self.saved: list[tuple[Position | None, Counter[tuple[int, int]]]] = [(None, Counter())]
        self.old: list[Request] = []
        self.round = 0
        self.new_round(world, parts, 0, hurry)

    def new_round(self, world: int, parts: int, save: int, hurry: bool) -> None:
        """All workers are replaced; what the ledger is told of it is their first request."""
        if self.round:
            self.old += [worker.request for worker in self.workers.values() if worker.request]
            if self.dataset.tracking == "ack":
                self.trouble.update({next(iter(queue)) for queue in self.queues.values() if queue})
        self.round += 1
        self.world = world
        self.workers = {(rank, part): Worker(rank, part) for rank in range(world) for part in range(parts)}
        self.queues: dict[Owned, list[int]] = {owner: [] for owner in self.workers}
        self.lost: dict[Owned, list[int]] = {owner: [] for owner in self.workers}
        self.opened: set[int] = set()  # in this master's memory
        self.welcome: set[int] = set()  # these know that the round has begun
        self.votes: dict[int, int] = {}
        self.cuts, self.cut_position = 0, Position()
        self.restored: Position | None = None
        if self.dataset.tracking == "checkpoint":
            self.restored, used = self.saved[-1 - save % len(self.saved)]  # 0: the last one
            self.used = used.copy()
        self.open(0)
        if hurry:
            self.all_open()

    # -- what is so

    @property
    def shard_indices(self) -> range:
        return range(self.dataset.total)

    def offset(self, shard_index: int) -> int:
        return sum(self.used[shard_index, record] for record in range(RECORDS))

    def is_done(self, shard_index: int) -> bool:
        return self.offset(shard_index) == RECORDS

    def owners_of(self, shard_index: int) -> list[Owned]:
        return [owner for owner, queue in self.queues.items() if shard_index in queue]

    @property
    def all_done(self) -> bool:
        return all(self.is_done(shard_index) for shard_index in self.shard_indices)

    def piece(self, shard_index: int) -> Piece:
        return Piece(shard_index, self.offset(shard_index), self.trouble[shard_index])

    # -- asking

    def ask(self, request: Request) -> Answer | None:
        """Asks, and sees that any change is known as one."""
        before = self.ledger.state
        self.ledger.changed = False
        answer = self.ledger.answer(request, self.now)
        if request.kind == "exchange" and (self.dataset.tracking == "checkpoint" or not request.wants):
            successor = Ledger(read(written(before)), self.now)  # with wants, "ack" depends on how long shards took
            assert successor.answer(request, self.now) == answer
            assert successor.state == self.ledger.state
        assert self.ledger.changed or self.ledger.state == before
        return answer

    def ask_in_vain(self, request: Request, kind: str) -> None:
        before = self.ledger.state
        answer = self.ask(request)
        assert answer and answer.kind == kind
        assert answer.text
        assert self.ledger.state == before

    def open(self, rank: int) -> None:
        request = Request("open", "data", self.round, rank, self.world, dataset=self.dataset, restored=self.restored)
        answer = self.ask(request)
        self.opened.add(rank)
        begun = self.dataset.tracking == "ack" or bool(self.welcome) or len(self.opened) == self.world
        assert answer == (Answer() if begun else None)
        if begun:
            self.welcome.add(rank)
        else:
            assert f"{min(set(range(self.world)) - self.opened)}" in self.ledger.why(request)

    def exchange(self, worker: Worker, marks: Sequence[Mark], release: Sequence[int], wants: int) -> None:
        rank, part = worker.owner
        worker.sequence += 1
        worker.request = Request(
            "exchange",
            "data",
            self.round,
            rank,
            self.world,
            part,
            worker.sequence,
            marks=tuple(marks),
            release=tuple(release),
            wants=wants,
        )
        worker.answer = None
        self.mark(rank, marks, release)
        self.expect(worker)

    def cut(self, worker: Worker, marks: Sequence[Mark], step: int) -> None:
        rank, _ = worker.owner
        worker.sequence += 1
        worker.request = Request(
            "cut",
            "data",
            self.round,
            rank,
            self.world,
            sequence=worker.sequence,
            marks=tuple(marks),
            cut=self.cuts + 1,
            step=step,
        )
        worker.answer = None
        self.mark(rank, marks, ())
        self.expect(worker)

    def mark(self, rank: int, marks: Sequence[Mark], release: Sequence[int]) -> None:
        """What the ledger does with a request once, and the worker with what it believes."""
        for mark in marks:
            mine = [owner for owner in self.owners_of(mark.shard_index) if owner[0] == rank]
            if mine and (mark.offset == DONE or self.dataset.tracking == "checkpoint"):
                until = RECORDS if mark.offset == DONE else mark.offset
                for record in range(self.offset(mark.shard_index), until):
                    self.used[mark.shard_index, record] += 1
            if mark.offset == DONE and mine:
                for owner in self.owners_of(mark.shard_index):
                    self.queues[owner].remove(mark.shard_index)
                    if owner[0] != rank:
                        self.lost[owner].append(mark.shard_index)
        for shard_index in release:
            for owner in self.owners_of(shard_index):
                if owner[0] == rank:
                    self.queues[owner].remove(shard_index)
        for owner, worker in self.workers.items():
            if owner[0] == rank:
                for mark in marks:
                    if mark.offset == DONE:
                        worker.offsets.pop(mark.shard_index, None)
                    elif mark.shard_index in worker.offsets:
                        worker.offsets[mark.shard_index] = mark.offset
                for shard_index in release:
                    worker.offsets.pop(shard_index, None)

    def expect(self, worker: Worker) -> None:
        """Asks what the worker has to ask, and compares the answer with the lists."""
        assert worker.request
        answer = self.ask(worker.request)
        expected = self.cut_answer(worker) if worker.request.kind == "cut" else self.leases(worker, answer)
        if expected is None or expected.kind == "refused":
            assert answer == (expected and replace(expected, text=answer.text if answer else ""))
            assert not answer or answer.text
            assert self.ledger.why(worker.request)
            worker.answer = answer
            return
        expected = replace(expected, lost=tuple(self.lost[worker.owner]))
        assert answer == expected
        self.queues[worker.owner] += [piece.shard_index for piece in expected.leases]
        self.lost[worker.owner] = []
        worker.answer = answer
        for shard_index in expected.lost:
            worker.offsets.pop(shard_index, None)
        for piece in expected.leases:
            worker.offsets[piece.shard_index] = piece.offset

    def leases(self, worker: Worker, answer: Answer | None) -> Answer | None:
        assert worker.request
        wants = worker.request.wants
        if not wants:
            return Answer(ended=self.all_done)
        free = [
            shard_index
            for shard_index in self.shard_indices
            if not self.is_done(shard_index) and not self.owners_of(shard_index)
        ]
        if free:
            return Answer(leases=tuple(map(self.piece, free[:wants])))
        if self.dataset.tracking == "checkpoint" or self.all_done:
            return Answer(ended=True)
        if self.queues[worker.owner]:
            return Answer()
        others = [queue for owner, queue in self.queues.items() if owner[0] != worker.owner[0]]
        second = [
            (index, shard_index)
            for queue in others
            for index, shard_index in enumerate(queue)
            if len(self.owners_of(shard_index)) == 1
        ]
        if waiting := [pair for pair in second if pair[0]]:
            return Answer(leases=(self.piece(max(waiting)[1]),))
        if answer is None:
            due = self.ledger.due(self.now)
            assert not second or (due is not None and due > self.now), "it could hang"
            return None
        (piece,) = answer.leases
        assert piece.shard_index in [shard_index for _, shard_index in second]
        return Answer(leases=(self.piece(piece.shard_index),))

    def cut_answer(self, worker: Worker) -> Answer | None:
        request = worker.request
        assert request
        if request.cut == self.cuts:
            return Answer(position=self.cut_position)
        self.votes[request.rank] = request.step
        if len(self.votes) < self.world:
            return None
        if len(set(self.votes.values())) > 1:
            return Answer("refused")
        self.votes = {}
        self.cuts += 1
        self.cut_position = self.ledger.position
        self.compare(self.cut_position)
        self.saved.append((self.cut_position, self.used.copy()))
        return Answer(position=self.cut_position)

    def compare(self, position: Position) -> None:
        """A position is all that is not done, and no more."""
        todo = [piece.shard_index for piece in position.todo]
        assert todo == sorted(set(todo))
        assert all(shard_index < position.frontier for shard_index in todo)
        offsets = {piece.shard_index: piece.offset for piece in position.todo}
        offsets |= {shard_index: 0 for shard_index in self.shard_indices if shard_index >= position.frontier}
        assert offsets == {
            shard_index: self.offset(shard_index) for shard_index in self.shard_indices if not self.is_done(shard_index)
        }

    # -- what may happen

    def ready(self, *, waits: bool = False) -> list[Worker]:
        """Workers that may ask something new; or those that wait."""
        return [worker for worker in self.workers.values() if worker.owner[0] in self.welcome and worker.waits == waits]

    @rule(rank=st.integers(0, 3))
    def a_rank_opens(self, rank: int) -> None:
        self.open(rank % self.world)

    @rule()
    def all_open(self) -> None:
        for rank in range(self.world):
            self.open(rank)
        for rank in range(self.world):
            self.open(rank)

    @rule(who=st.integers(0, 7), wants=st.integers(0, 4), data=st.data())
    def a_worker_exchanges(self, who: int, wants: int, data: st.DataObject) -> None:
        if not (ready := self.ready()):
            return
        worker = ready[who % len(ready)]
        marks = self.drawn(worker, data)
        rest = sorted(self.believed(worker).keys() - {mark.shard_index for mark in marks if mark.offset == DONE})
        release = [shard_index for shard_index in rest if not data.draw(st.integers(0, 3))]
        self.exchange(worker, marks, data.draw(st.permutations(release)), wants)

    @rule(who=st.integers(0, 7))
    def nothing_is_left_to_lease(self, who: int) -> None:
        """So that the next idle worker is given what another has."""
        ready = self.ready()
        for worker in ready[who % 8 :] + ready[: who % 8]:
            if self.dataset.tracking == "ack" and not worker.waits:
                self.exchange(worker, (), (), len(self.shard_indices))

    @rule(who=st.integers(0, 7), skew=st.sampled_from([0, 0, 0, 0, 1]), data=st.data())
    def a_rank_cuts(self, who: int, skew: int, data: st.DataObject) -> None:
        ready = [worker for worker in self.ready() if worker.owner[1] == 0]
        if self.dataset.tracking == "ack" or not ready:
            return
        worker = ready[who % len(ready)]
        self.cut(worker, self.drawn(worker, data), self.cuts * 10 + skew)

    @rule()
    def all_ranks_cut(self) -> None:
        if self.dataset.tracking == "checkpoint":
            self.all_open()
            self.settle_cuts()
            for worker in [worker for worker in self.ready() if worker.owner[1] == 0]:
                self.cut(worker, (), self.cuts * 10)
            self.settle_cuts()

    def believed(self, worker: Worker) -> dict[int, int]:
        """What the processes of its rank believe to have, with offsets."""
        return {
            shard_index: offset
            for owner, other in self.workers.items()
            if owner[0] == worker.owner[0]
            for shard_index, offset in other.offsets.items()
        }

    def drawn(self, worker: Worker, data: st.DataObject) -> list[Mark]:
        marks: list[Mark] = []
        for shard_index, offset in self.believed(worker).items():
            marks += {
                0: [Mark(shard_index)],
                1: [Mark(shard_index), Mark(shard_index)],  # as good as one
                2: [Mark(shard_index, min(offset + 1, RECORDS - 1))],
                3: [],
            }[data.draw(st.integers(0, 3))]
        return marks

    @rule(who=st.integers(0, 7))
    def a_worker_asks_the_same_again(self, who: int) -> None:
        if asked := [worker for worker in self.workers.values() if worker.request]:
            worker = asked[who % len(asked)]
            assert worker.request
            if worker.answer is None or worker.answer.kind == "refused":
                self.expect(worker)
                return
            before = self.ledger.state
            assert self.ask(worker.request) == worker.answer
            assert self.ledger.state == before

    @rule(which=st.integers(0, 100))
    def an_old_round_asks(self, which: int) -> None:
        if self.old:
            self.ask_in_vain(self.old[which % len(self.old)], "stale")

    @rule(who=st.integers(0, 7), ahead=st.sampled_from([-2, -1, 2, 3]))
    def a_number_is_out_of_line(self, who: int, ahead: int) -> None:
        if ready := self.ready():
            worker = ready[who % len(ready)]
            if (sequence := worker.sequence + ahead) > 0:
                rank, part = worker.owner
                marks = tuple(Mark(shard_index) for shard_index in self.shard_indices)
                request = Request("exchange", "data", self.round, rank, self.world, part, sequence, marks=marks)
                self.ask_in_vain(request, "refused")

    @rule(which=st.integers(0, 40), who=st.integers(0, 7))
    def a_shard_of_somebody_else_is_given_back_and_marked(self, which: int, who: int) -> None:
        twice = [shard_index for shard_index in self.shard_indices if len(self.owners_of(shard_index)) == 2]
        several = twice or self.shard_indices
        shard_index = several[which % len(several)]
        ready = [
            worker
            for worker in self.ready()
            if worker.owner[0] not in {rank for rank, _ in self.owners_of(shard_index)}
            and shard_index not in self.believed(worker)
        ]
        if ready:
            self.exchange(ready[who % len(ready)], [Mark(shard_index), Mark(shard_index, 1)], [shard_index], 0)
            for owner in self.owners_of(shard_index)[:1]:
                if not self.workers[owner].waits:
                    self.exchange(self.workers[owner], [Mark(shard_index)], (), 0)

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def another_master_takes_over(self) -> None:
        state = self.ledger.state
        self.ledger = Ledger(read(written(state)), self.now)
        assert self.ledger.state == state
        self.opened = set()
        self.votes = {}

    @rule(
        world=st.integers(1, 4),
        parts=st.integers(1, 2),
        save=st.sampled_from([0, 0, 0, 1, 2]),
        also=st.booleans(),
        hurry=st.booleans(),
    )
    def a_round_begins(self, world: int, parts: int, save: int, also: bool, hurry: bool) -> None:
        if also:
            self.ledger.turn(self.round + 1)
        self.new_round(world, parts, save, hurry)

    # -- what is always so

    @invariant()
    def the_ledger_holds_what_the_lists_hold(self) -> None:
        state = self.ledger.state
        queues = {(owner.rank, owner.part): owner.leases for owner in state.owners}
        for owner, queue in self.queues.items():
            assert queues.get(owner, ()) == tuple(map(self.piece, queue))
        assert queues.keys() <= self.queues.keys()
        if self.dataset.tracking == "checkpoint" and not state.begun:
            assert (state.frontier, state.returned, state.owners) == (0, (), ())
            assert not self.welcome
            return
        returned = [piece.shard_index for piece in state.returned]
        assert returned == sorted(set(returned))
        for shard_index in self.shard_indices:
            owners = self.owners_of(shard_index)
            assert len(owners) <= 1 or (len({rank for rank, _ in owners}) == 2 == len(owners))
            assert len(owners) <= 1 or self.dataset.tracking == "ack"
            states = [self.is_done(shard_index), bool(owners), shard_index in returned]
            assert sum(states) == (shard_index < state.frontier)
        assert set(state.returned) == {self.piece(shard_index) for shard_index in returned}
        assert all(times == 1 for times in self.used.values())
        assert self.ledger.finished == self.all_done
        progress = self.ledger.progress
        assert progress.done == sum(map(self.is_done, self.shard_indices)) and progress.shards == self.dataset.total
        assert progress.leased == sum(bool(self.owners_of(shard_index)) for shard_index in self.shard_indices)
        self.compare(self.ledger.position)
        troubled = {piece.shard_index: piece.returned for piece in self.ledger.troubled}
        assert troubled == {
            shard_index: times for shard_index, times in self.trouble.items() if times and not self.is_done(shard_index)
        }

    # -- the end

    def settle_cuts(self) -> None:
        """Whoever waits in a cut is joined by the others."""
        for _ in range(10):
            waiting = [worker for worker in self.ready(waits=True) if worker.request and worker.request.kind == "cut"]
            if not waiting:
                return
            request = waiting[0].request
            assert request
            if request.cut > self.cuts:
                for worker in list(self.ready()):
                    if worker.owner[1] == 0 and request.cut > self.cuts:
                        self.cut(worker, (), request.step)
            for worker in waiting:
                self.expect(worker)
        raise AssertionError("ranks wait for a cut for ever")

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.all_open()
        self.settle_cuts()
        for _ in range(10 + 3 * len(self.shard_indices)):
            for worker in self.workers.values():
                if worker.waits:
                    self.expect(worker)
                else:
                    self.exchange(worker, [Mark(shard_index) for shard_index in worker.offsets], (), 2)
            self.the_ledger_holds_what_the_lists_hold()
            if all(worker.answer and worker.answer.ended for worker in self.workers.values()):
                break
            self.now = self.ledger.due(self.now) or self.now
        assert self.ledger.finished
        assert all(worker.answer and worker.answer.ended for worker in self.workers.values())
        each = Counter((shard_index % self.dataset.shards, record) for shard_index, record in self.used.elements())
        assert each == {
            (shard, record): self.dataset.epochs for shard in range(self.dataset.shards) for record in range(RECORDS)
        }


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=examples(400, 10), stateful_step_count=60, deadline=None)


# -- each behaviour by itself -----------------------------------------------------------------------------------------

DATA = Dataset("data", size=40, shard_size=10, shards=4)
QUEUE = replace(DATA, tracking="ack")


@transcripts("ledger")
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    replay(path, LedgerTranscript().on, request)


class LedgerTranscript:
    """The workers of a job, who ask a ledger; times are remembered. A piece is `index:offset!times lost`.

    ledger [ack] [shards=] [world=2]    a new one of 4 shards of 10 records; `begun`: every rank has opened it
    open 0 [restored=frontier/pieces]   rank 0 opens it, with what it declares
    ask 0 1 wants=2 done=0,1:5          request 1 of rank 0 (0.3: its process 3): what is done, release= and wanted
    cut 0 1 cut=1 step=10 done=         request 1 of rank 0: the first position, at step 10
    turn 2 since=0:1, next-master       round 2 begins (and rank 0 continues); another master reads what this has stored
    position, progress, troubled, due   what the ledger says
    """

    def __init__(self) -> None:
        self.dataset, self.world, self.now = DATA, 2, 0.0
        self.ledger = Ledger(fresh(DATA), 0.0)

    def on(self, command: Command) -> Iterator[str]:
        """Carries out one command."""
        due = self.ledger.due(self.now)
        self.now = due if due and command.options.get("at") == "due" else command.number("at", self.now)
        command.take("at")
        match command.name:
            case "ledger":
                self.dataset, self.world = self.declared(command, DATA), command.count("world", 2)
                self.now, self.ledger = 0.0, Ledger(fresh(self.dataset), 0.0)
                restored = position_of(command.take("restored"))
                for rank in range(self.world if command.flag("begun") else 0):
                    self.ledger.answer(opening(rank, self.world, self.dataset, restored), 0.0)
            case "open" | "ask" | "cut":
                since = command.count("since") or None
                yield self.answer(self.request(command), since)
            case "turn":
                pairs = [each.split(":") for each in command.take("since").split(",") if each]
                self.ledger.turn(int(command.words.pop()), {int(rank): int(since) for rank, since in pairs} or None)
            case "next-master":
                before, self.ledger = self.ledger, again(self.ledger, self.now)
                assert self.ledger.state == before.state
            case "position":
                yield position_words(self.ledger.position)
            case "progress":
                found = self.ledger.progress
                left = "unknown" if found.seconds_left is None else f"{found.seconds_left:g} s"
                yield (
                    f"{found.name} ({found.tracking}): {found.done} of {found.shards} shards done, {found.leased} "
                    f"leased, {found.records} records done, time left: {left}{', finished' * self.ledger.finished}"
                )
            case "troubled":
                yield pieces_words(self.ledger.troubled)
            case "due":
                yield "never" if due is None else f"{due:g}"
            case name:
                raise ValueError(name)

    def declared(self, command: Command, dataset: Dataset) -> Dataset:
        return command.change(replace(dataset, tracking="ack" if command.flag("ack") else dataset.tracking))

    def request(self, command: Command) -> Request:
        rank, _, part = command.words.pop(0).partition(".")
        world, round = command.count("world", self.world), command.count("round", max(1, self.ledger.round))
        if command.name == "open":
            restored = position_of(command.take("restored"))
            return opening(int(rank), world, self.declared(command, self.dataset), restored, round)
        kind: Literal["cut", "exchange"] = "cut" if command.name == "cut" else "exchange"
        request = Request(kind, "data", round, int(rank), world, int(part or 0), int(command.words.pop(0)))
        marks = tuple(Mark(each.shard_index, each.offset or DONE) for each in pieces_of(command.take("done")))
        release = tuple(each.shard_index for each in pieces_of(command.take("release")))
        return command.change(replace(request, marks=marks, release=release))

    def answer(self, request: Request, since: int | None) -> str:
        """What is answered, in words; and whether it has changed anything."""
        before = self.ledger.state
        answer = self.ledger.answer(request, self.now, since)
        unchanged = " (no change)" if self.ledger.state == before else ""
        if answer is None:
            return f"waits: {self.ledger.why(request)}{unchanged}"
        if answer.kind != "ok":
            return f"{answer.kind}: {answer.text}{unchanged}"
        words = [f"leases {pieces_words(answer.leases)}"] if answer.leases else []
        words += [f"lost {','.join(map(str, answer.lost))}"] if answer.lost else []
        words += [position_words(answer.position)] if answer.position is not None else []
        words += ["ended"] if answer.ended else []
        return f"{'; '.join(words) or 'ok'}{unchanged}"


def pieces_of(text: str) -> list[Piece]:
    """`0,1:5`: shard indices, and offsets."""
    return [Piece(*map(int, each.split(":"))) for each in text.split(",") if each]


def pieces_words(pieces: Sequence[Piece]) -> str:
    if len(pieces) > 40:
        return f"{len(pieces)} shards"
    words = [f":{each.offset}" * bool(each.offset) + f"!{each.returned}" * bool(each.returned) for each in pieces]
    return ",".join(f"{each.shard_index}{more}" for each, more in zip(pieces, words, strict=True))


def position_of(text: str) -> Position | None:
    frontier, _, todo = text.partition("/")
    return Position(int(frontier), tuple(pieces_of(todo))) if frontier else None


def position_words(position: Position) -> str:
    return f"position {position.frontier}/{pieces_words(position.todo)}"


def opening(
    rank: int, world: int, dataset: Dataset = DATA, restored: Position | None = None, round: int = 1
) -> Request:
    return Request("open", "data", round, rank, world, dataset=dataset, restored=restored)


def exchange(
    rank: int,
    sequence: int,
    wants: int = 0,
    *marks: Mark,
    release: tuple[int, ...] = (),
    part: int = 0,
    round: int = 1,
    world: int = 2,
) -> Request:
    return Request("exchange", "data", round, rank, world, part, sequence, marks=marks, release=release, wants=wants)


def cutting(rank: int, sequence: int, cut: int, step: int, *marks: Mark, world: int = 2) -> Request:
    return Request("cut", "data", 1, rank, world, sequence=sequence, marks=marks, cut=cut, step=step)


def begun(dataset: Dataset = DATA, world: int = 2, restored: Position | None = None) -> Ledger:
    ledger = Ledger(fresh(dataset), 0.0)
    answers = [ledger.answer(opening(rank, world, dataset, restored), 0.0) for rank in range(world)]
    assert answers[-1] == Answer()
    return ledger


def ok(ledger: Ledger, request: Request, now: float = 0.0) -> Answer:
    answer = ledger.answer(request, now)
    assert answer
    assert answer.kind == "ok", answer
    return answer


def shard_indices(answer: Answer) -> list[int]:
    return [piece.shard_index for piece in answer.leases]


def again(ledger: Ledger, now: float = 0.0) -> Ledger:
    """The next master's."""
    return Ledger(read(written(ledger.state)), now)


def refusal(answer: Answer | None) -> str:
    assert answer
    assert answer.kind == "refused"
    return answer.text


@pytest.mark.parametrize("release", [(0, 1), (1, 1), (0, 0), (1, 0)])
def test_a_shard_that_two_have_and_one_gives_back_is_still_the_other_s(release: tuple[int, int]) -> None:
    """Whoever gives it back; `release` is a rank and its part that ask."""
    ledger = begun(QUEUE)
    for idle in (0, 1):
        ok(ledger, exchange(idle, 1))
    ok(ledger, exchange(0, 1, 4, part=1))
    assert shard_indices(ok(ledger, exchange(1, 1, 1, part=1))) == [3]
    rank, part = release
    ok(ledger, exchange(rank, 2, 0, part=part, release=(3,)))
    assert 3 not in [piece.shard_index for piece in ledger.state.returned]
    ok(ledger, exchange(1 - rank, 2, 0, Mark(3), part=1))
    assert ledger.position.todo == (Piece(0), Piece(1), Piece(2))


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (exchange(0, 1, 1), ""),
        (cutting(0, 1, 1, 0), ""),
        (opening(0, 2), ""),
        (opening(0, 2, restored=Position(3, (Piece(0), Piece(2, 4)))), ""),
        (replace(opening(0, 2), dataset=None), "an open without its dataset"),
        (replace(opening(0, 2), name="other"), "an open without its dataset"),
        (opening(0, 2, replace(DATA, shards=0)), "dataset 'data' is empty"),
        (opening(0, 2, restored=Position(-1)), "the position that was restored is damaged"),
        (opening(0, 2, restored=Position(3, (Piece(3),))), "the position that was restored is damaged"),
        (opening(0, 2, restored=Position(3, (Piece(-1),))), "the position that was restored is damaged"),
        (opening(0, 2, restored=Position(3, (Piece(2), Piece(0)))), "the position that was restored is damaged"),
        (opening(0, 2, restored=Position(3, (Piece(1), Piece(1, 2)))), "the position that was restored is damaged"),
        (opening(0, 2, restored=Position(3, (Piece(1, -1),))), "the position that was restored is damaged"),
        (exchange(0, 0), "a request without a number"),
        (exchange(2, 1), "rank 2 of 2"),
        (exchange(-1, 1), "rank -1 of 2"),
        (exchange(0, 1, 0, Mark(-1)), "a mark of no shard"),
        (exchange(0, 1, 0, Mark(0, -2)), "a mark of no shard"),
    ],
)
def test_a_request_that_cannot_be_is_refused_in_words(request_: Request, wrong: str) -> None:
    assert check_request(request_) == wrong


def test_what_another_version_has_stored_is_not_guessed_at() -> None:
    with pytest.raises(BadState, match=r"its version is 4, and this elastic-run reads 3"):
        read(written(replace(fresh(DATA), version=VERSION + 1)))
    with pytest.raises(BadState, match=r"State\.frontier: expected int, found str"):
        read(written(replace(fresh(DATA), frontier=7)).replace(b'"frontier":7', b'"frontier":"7"'))


PIECES = (Piece(7, 3), Piece(8), Piece(5, 0, 2), Piece(10**7, 1, 1))


def test_what_is_stored_is_read_as_it_was() -> None:
    owners = (Owner(0, 1, 4, Answer(leases=PIECES, lost=(3,), ended=True), PIECES[:1]), Owner(1, 0))
    position = Position(9, PIECES[:2])
    state = State(VERSION, DATA, 3, True, position, 11, PIECES, owners, 2, 40, position, "run")
    assert read(written(state)) == state


@pytest.mark.parametrize(
    "pieces",
    [
        b'{"indices":7}',
        b'{"indices":["7"]}',
        b'{"indices":[1.5]}',
        b'{"indices":[true]}',
        b'{"indices":[7],"offsets":[0]}',
        b'{"indices":[7],"offsets":[1,4]}',
        b'{"indices":[7],"returned":[-1,4]}',
        b'{"indices":[7],"returned":null}',
        b'{"Indices":[7]}',
    ],
)
def test_damaged_pieces_are_told(pieces: bytes) -> None:
    value = written(replace(fresh(DATA), returned=(Piece(7),)))
    assert b'{"indices":[7]}' in value
    with pytest.raises(BadState):
        read(value.replace(b'{"indices":[7]}', pieces))


# -- how large it is --------------------------------------------------------------------------------------------------

MANY = 10**7
"""Shards."""

CONSTANT, PER_LEASE, PER_OWNER = 300, 50, 100
"""Bytes. A lease is in an owner's queue and its last answer, and may be in the origin and the cut."""


@pytest.mark.parametrize("tracking", ["checkpoint", "ack"])
@pytest.mark.parametrize("slow", [False, True])
def test_the_state_follows_the_number_of_workers_and_not_of_shards(tracking: Tracking, slow: bool) -> None:
    world, ahead, turns = 4, MAX_WANTED, examples(40, 4)
    ledger = begun(Dataset("data", MANY * 1000, 1000, MANY, tracking=tracking), world)
    held: list[list[int]] = [[] for _ in range(world)]
    for turn in range(1, turns + 1):
        for rank in range(world):
            keep = held[0][:1] if slow and rank == 0 else []
            marks = [Mark(shard_index) for shard_index in held[rank] if shard_index not in keep]
            held[rank] = keep + shard_indices(ok(ledger, exchange(rank, turn, ahead - len(keep), *marks, world=world)))
    assert ledger.state.frontier == pytest.approx(turns * world * ahead, rel=0.01)
    for rank in range(world):
        rest = [Mark(shard_index) for shard_index in held[rank][1:]]
        ok(ledger, exchange(rank, turns + 1, 0, *rest, world=world))
    assert len(written(ledger.state)) < CONSTANT + world * (PER_OWNER + PER_LEASE)


def test_64_ranks_with_64_shards_each_take_tens_of_kilobytes() -> None:
    """All of it is written with every answer, so a store that keeps ten thousand versions keeps that many of these."""
    world = 64
    ledger = begun(Dataset("data", MANY * 1000, 1000, MANY, tracking="ack"), world)
    for turn in range(1, 65):
        for rank in range(world):  # one at a time, so that each has shards far apart
            ok(ledger, exchange(rank, turn, 1, world=world))
    assert sum(len(owner.leases) for owner in ledger.state.owners) == 64 * 64
    assert len(written(ledger.state)) < 25_000


def test_a_cut_is_kept_once_and_not_with_every_rank() -> None:
    world = 200
    ledger = begun(replace(DATA, shards=MANY), world)
    for rank in range(world):
        ok(ledger, exchange(rank, 1, 2, world=world))
    for rank in range(world - 1):
        assert ledger.answer(cutting(rank, 2, 1, 5, world=world), 0.0) is None
    position = ok(ledger, cutting(world - 1, 2, 1, 5, world=world)).position
    assert position is not None
    assert len(position.todo) == 2 * world
    for rank in range(world):
        assert ok(again(ledger) if rank == 0 else ledger, cutting(rank, 2, 1, 5, world=world)).position == position
    assert len(written(ledger.state)) < CONSTANT + world * (PER_OWNER + 2 * PER_LEASE)


def test_a_shard_whose_gradients_go_to_servers_has_one_worker() -> None:
    """A second one would push what the first has pushed."""

    def is_leased_twice(*, alone: bool) -> bool:
        dataset = Dataset("d", 10, 10, 1, tracking="ack", alone=alone)
        ledger = Ledger(fresh(dataset), 0.0)
        for rank in range(2):
            ledger.answer(Request("open", "d", 1, rank, 2, dataset=dataset), 0.0)
        first = ledger.answer(Request("exchange", "d", 1, 0, 2, sequence=1, wants=1), 0.0)
        assert first and first.leases
        second = ledger.answer(Request("exchange", "d", 1, 1, 2, sequence=1, wants=1), 1e6)
        assert (ledger.due(0.0) is None) == alone
        return second is not None and bool(second.leases)

    assert is_leased_twice(alone=False)
    assert not is_leased_twice(alone=True)
