"""Leases of a stream's offsets: a twin that keeps every offset in a list, and each behaviour by itself."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastic_run.master.data.ledger import (
    DONE,
    Answer,
    Dataset,
    Mark,
    OffsetRange,
    Piece,
    Position,
    Request,
    StreamTerms,
    Tracking,
    fresh,
    ledger_of,
)
from elastic_run.master.data.ledger_requests import check_request
from elastic_run.master.data.shard import LARGEST
from elastic_run.master.data.stored_ledger import BadState, read, written
from elastic_run.master.data.stream import StreamLayout
from elastic_run.master.data.stream_ledger import MAX_PARTITIONS, StreamLedger

from ....sampling import examples

CLICKS = Dataset("clicks", LARGEST, 4, LARGEST, shuffle=False, tracking="ack", stream=StreamTerms(lost="skip"))

Offset = tuple[str, int]


class Streams(RuleBasedStateMachine):
    """A source that grows and forgets, workers who ask in any order, and one ledger: each offset counts once.

    `used` holds what is done, or, in tracking mode "checkpoint", what the model has seen. `gone` holds what workers
    found to be gone from their leases.
    """

    @initialize(
        tracking=st.sampled_from(["checkpoint", "ack"]),
        follow=st.booleans(),
        world=st.integers(1, 3),
        low=st.integers(0, 5),
    )
    def begin(self, tracking: Tracking, follow: bool, world: int, low: int) -> None:
        self.dataset = replace(CLICKS, tracking=tracking, stream=StreamTerms(follow, lost="skip"))
        self.ledger = ledger_of(fresh(self.dataset), 0.0)
        self.source = {"a": (low, low + 9), "b": (0, 0)}
        self.begins: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.used: Counter[Offset] = Counter()
        self.saved: Position | None = None
        self.saved_used: Counter[Offset] = Counter()
        self.round, self.world, self.cuts = 0, world, 0
        self.started: dict[int, int] = {}
        self.begin_round(world, [])

    def begin_round(self, world: int, stays: list[int]) -> None:
        self.round, self.world, self.cuts = self.round + 1, world, 0
        self.started = {rank: self.started[rank] if rank in stays else self.round for rank in range(world)}
        self.leases = {rank: self.leases[rank] if rank in stays else {} for rank in range(world)}
        self.numbers = {rank: self.numbers[rank] if rank in stays else 0 for rank in range(world)}
        if self.dataset.tracking == "checkpoint":
            self.used = self.saved_used.copy()
        answer: Answer | None = None
        for rank in [*range(world), *range(world)]:
            request = Request(
                "open",
                "clicks",
                self.round,
                rank,
                world,
                dataset=self.dataset,
                restored=self.saved if not stays else None,
            )
            answer = self.ask(replace(request, round=self.started[rank]))
        assert answer == Answer()

    leases: dict[int, dict[int, Piece]]
    numbers: dict[int, int]

    def ask(self, request: Request) -> Answer | None:
        assert not check_request(request)
        return self.ledger.answer(request, 0.0, self.started[request.rank])

    @property
    def known(self) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(name, *ends) for name, ends in self.source.items())

    # -- what may happen

    @rule(name=st.sampled_from("abc"), count=st.integers(1, 9))
    def records_arrive(self, name: str, count: int) -> None:
        low, high = self.source.get(name, (0, 0))
        self.source[name] = low, high + count

    @rule(name=st.sampled_from("ab"), count=st.integers(1, 12))
    def the_source_forgets(self, name: str, count: int) -> None:
        low, high = self.source[name]
        self.source[name] = min(low + count, high), high

    @rule(who=st.integers(0, 2), wants=st.integers(0, 3), tells=st.booleans(), data=st.data())
    def a_worker_exchanges(self, who: int, wants: int, tells: bool, data: st.DataObject) -> None:
        rank = who % self.world
        marks: list[Mark] = []
        release: list[int] = []
        if data.draw(st.booleans()):
            marks.append(Mark(self.ledger.state.frontier + 5, DONE, 3))  # nobody's
        for index, piece in list(self.leases[rank].items()):
            match data.draw(st.sampled_from(["done", "half", "back", "work"])):
                case "done":
                    marks.append(self.work(rank, piece, 99))
                case "half":
                    marks.append(self.work(rank, piece, 1))
                case "back":
                    release.append(index)
                    del self.leases[rank][index]
                case _:
                    pass
        self.exchange(rank, marks, release, wants, self.known if tells else ())

    def work(self, rank: int, piece: Piece, most: int) -> Mark:
        """Reads what is still there; whatever comes of it is said with the mark."""
        assert piece.offsets
        name, first, stop = piece.offsets.partition, piece.offsets.first, piece.offsets.stop
        begin = first + piece.offset
        there = min(max(begin, self.source[name][0]), stop)
        end = min(there + most, stop)
        offset = DONE if end == stop else end - first
        if offset == DONE or self.dataset.tracking == "checkpoint":
            self.used.update((name, number) for number in range(there, end))
            lost = there - begin
        else:
            lost = 0
        if offset == DONE:
            del self.leases[rank][piece.shard_index]
        elif self.dataset.tracking == "checkpoint":
            self.leases[rank][piece.shard_index] = replace(piece, offset=offset)
        return Mark(piece.shard_index, offset, lost)

    def exchange(
        self, rank: int, marks: list[Mark], release: list[int], wants: int, known: tuple[OffsetRange, ...]
    ) -> Answer:
        self.numbers[rank] += 1
        request = Request(
            "exchange",
            "clicks",
            self.started[rank],
            rank,
            self.world,
            sequence=self.numbers[rank],
            marks=tuple(marks),
            release=tuple(release),
            wants=wants,
            known=known,
        )
        answer = self.ask(request)
        assert answer and answer.kind == "ok" and not answer.lost
        if not self.ends:
            self.ends = {each.partition: each.stop for each in known}
        for each in known:
            if self.dataset.stream and (self.dataset.stream.follow or each.partition in self.ends):
                self.begins.setdefault(each.partition, each.first)
        state = self.ledger.state
        assert self.ask(request) == answer, "the same request has the same answer"
        assert self.ledger.state == state
        for piece in answer.leases:
            assert piece.offsets and 0 < piece.offsets.stop - piece.offsets.first <= self.dataset.shard_size
            assert all(piece.shard_index not in leases for leases in self.leases.values())
            self.leases[rank][piece.shard_index] = replace(piece, returned=0)
        return answer

    @rule()
    def all_ranks_cut(self) -> None:
        if self.dataset.tracking == "ack":
            return
        answers: list[Answer | None] = []
        for rank in range(self.world):
            self.numbers[rank] += 1
        for rank in [*range(self.world), *range(self.world)]:
            request = Request(
                "cut", "clicks", self.round, rank, self.world, sequence=self.numbers[rank], cut=self.cuts + 1
            )
            answers.append(self.ask(request))
        self.cuts += 1
        last = answers[-1]
        assert last and last.position
        assert all(answer == last for answer in answers[self.world :])
        self.saved, self.saved_used = last.position, self.used.copy()

    @rule()
    def another_master_takes_over(self) -> None:
        state = self.ledger.state
        self.ledger = ledger_of(read(written(state)), 0.0)
        assert isinstance(self.ledger, StreamLedger)
        assert self.ledger.state == state

    @rule(world=st.integers(1, 3), stays=st.lists(st.integers(0, 2)))
    def a_round_begins(self, world: int, stays: list[int]) -> None:
        kept = [rank for rank in stays if rank < min(world, self.world)] if self.dataset.tracking == "ack" else []
        since = {rank: self.started[rank] for rank in kept}
        self.ledger.turn(self.round + 1, since or None)
        self.begin_round(world, kept)

    # -- what is always so

    @invariant()
    def each_offset_counts_once(self) -> None:
        state = self.ledger.state
        out = [*state.returned, *(piece for owner in state.owners for piece in owner.leases)]
        leased = {owner.rank: {piece.shard_index for piece in owner.leases} for owner in state.owners}
        assert all(leased.get(rank, set()) == leases.keys() for rank, leases in self.leases.items())
        places = self.used.copy()
        for piece in out:
            assert piece.offsets
            begin = piece.offsets.first + piece.offset
            places.update((piece.offsets.partition, number) for number in range(begin, piece.offsets.stop))
        assert all(times == 1 for times in places.values()), (
            "an offset is done, returned or leased, and only one of these"
        )
        lost = 0
        for each in state.partitions:
            known = {number for name, number in places if name == each.partition}
            assert not known or max(known) < each.first
            nowhere = set(range(self.begins[each.partition], each.first)) - known
            assert all(number < self.source[each.partition][0] for number in nowhere), "only what is gone is lost"
            lost += len(nowhere)
        assert state.lost == lost
        progress = self.ledger.progress
        assert 0 <= progress.records - sum(self.used.values()) <= lost  # in leases
        assert progress.lag == sum(each.stop - each.first for each in state.partitions) + sum(
            piece.offsets.stop - piece.offsets.first - piece.offset for piece in out if piece.offsets
        )

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for _ in range(2):
            for rank in range(self.world):
                self.exchange(
                    rank, [self.work(rank, piece, 99) for piece in list(self.leases[rank].values())], [], 0, self.known
                )
        answer = Answer(leases=(Piece(0),))
        while answer.leases:
            answer = self.exchange(
                0, [self.work(0, piece, 99) for piece in list(self.leases[0].values())], [], 2, self.known
            )
        follows = bool(self.dataset.stream and self.dataset.stream.follow)
        assert self.ledger.finished != follows
        assert answer.ended != follows
        self.each_offset_counts_once()
        ends = {name: high for name, (_, high) in self.source.items()} if follows else self.ends
        assert {each.partition: each.first for each in self.ledger.state.partitions} == ends


TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=examples(400, 20), stateful_step_count=40, deadline=None)


# -- each behaviour by itself -----------------------------------------------------------------------------------------


def opened(stream: StreamTerms, tracking: Tracking = "ack") -> StreamLedger:
    """One rank has opened it."""
    dataset = replace(CLICKS, stream=stream, tracking=tracking)
    ledger = ledger_of(fresh(dataset), 0.0)
    assert isinstance(ledger, StreamLedger)
    assert ledger.answer(Request("open", "clicks", 1, 0, 1, dataset=dataset), 0.0) == Answer()
    return ledger


def told(ledger: StreamLedger, number: int, *known: OffsetRange, wants: int = 1) -> Answer:
    answer = ledger.answer(Request("exchange", "clicks", 1, 0, 1, sequence=number, wants=wants, known=known), 0.0)
    assert answer
    return answer


def test_what_is_gone_ends_the_job_and_the_next_run_may_skip_it() -> None:
    ledger = opened(StreamTerms())
    assert told(ledger, 1, OffsetRange("a", 0, 8)).leases == (Piece(0, offsets=OffsetRange("a", 0, 4)),)
    answer = told(ledger, 2, OffsetRange("a", 6, 9))
    assert answer.kind == "refused"
    assert "offsets 4 to 5 of partition 'a' are gone" in answer.text and 'lost="skip"' in answer.text
    assert ledger.state.partitions == (OffsetRange("a", 4, 9),)

    ledger.turn(2)
    skips = replace(CLICKS, stream=StreamTerms(lost="skip"))
    assert ledger.answer(Request("open", "clicks", 2, 0, 1, dataset=skips), 0.0) == Answer()
    request = Request("exchange", "clicks", 2, 0, 1, sequence=1, wants=2, known=(OffsetRange("a", 6, 9),))
    answer = ledger.answer(request, 0.0)
    assert answer and [piece.offsets for piece in answer.leases] == [OffsetRange("a", 0, 4), OffsetRange("a", 6, 9)]
    assert ledger.progress.lost == 2


def test_the_latest_are_those_after_the_first_look_and_later_partitions_are_whole() -> None:
    ledger = opened(StreamTerms(start="latest"))
    assert told(ledger, 1, OffsetRange("a", 0, 8)).leases == ()
    answer = told(ledger, 2, OffsetRange("a", 0, 9), OffsetRange("b", 0, 2), wants=3)
    assert [piece.offsets for piece in answer.leases] == [OffsetRange("b", 0, 2), OffsetRange("a", 8, 9)]


@pytest.mark.parametrize("cut_before", [False, True])
def test_what_came_after_the_first_look_is_read_though_no_checkpoint_has_it(cut_before: bool) -> None:
    ledger = opened(StreamTerms(start="latest"), "checkpoint")
    saved: Position | None = None
    if cut_before:
        answer = ledger.answer(Request("cut", "clicks", 1, 0, 1, sequence=1, cut=1), 0.0)
        saved = answer.position if answer else None
        assert saved == Position()
    told(ledger, 1 + cut_before, OffsetRange("a", 0, 8))
    ledger.turn(2)
    ledger = ledger_of(read(written(ledger.state)), 0.0)
    assert isinstance(ledger, StreamLedger)
    request = Request("open", "clicks", 2, 0, 1, dataset=ledger.dataset, restored=saved)
    assert ledger.answer(request, 0.0) == Answer()
    known = (OffsetRange("a", 0, 10),)
    answer = ledger.answer(Request("exchange", "clicks", 2, 0, 1, sequence=1, wants=1, known=known), 0.0)
    assert answer and [piece.offsets for piece in answer.leases] == [OffsetRange("a", 8, 10)]


def test_another_source_is_looked_at_anew() -> None:
    ledger = opened(StreamTerms(), "checkpoint")
    told(ledger, 1, OffsetRange("a", 0, 8))
    ledger.turn(2)
    dataset = replace(ledger.dataset, files="another")
    assert ledger.answer(Request("open", "clicks", 2, 0, 1, dataset=dataset), 0.0) == Answer()
    assert ledger.state.partitions == ()


def test_a_worker_reads_on_in_the_partition_that_has_most() -> None:
    ledger = opened(StreamTerms())
    answer = told(ledger, 1, OffsetRange("a", 0, 5), OffsetRange("b", 0, 9), wants=4)
    ranges = [("b", 0, 4), ("b", 4, 8), ("b", 8, 9), ("a", 0, 4)]
    assert [piece.offsets for piece in answer.leases] == [OffsetRange(*each) for each in ranges]


def test_a_stream_of_too_many_partitions_is_refused() -> None:
    ledger = opened(StreamTerms())
    answer = told(ledger, 1, *(OffsetRange(f"{i}", 0, 1) for i in range(MAX_PARTITIONS + 1)))
    assert (answer.kind, f"more than {MAX_PARTITIONS} partitions" in answer.text) == ("refused", True)


TABLES = replace(CLICKS, alone=True)


def opened_with(dataset: Dataset, restored: Position | None, origins: tuple[OffsetRange, ...] = ()) -> StreamLedger:
    """One rank has opened it anew, with what it has read from the rows of its tables."""
    ledger = ledger_of(replace(fresh(dataset), origins=origins), 0.0)
    assert isinstance(ledger, StreamLedger)
    request = Request("open", "clicks", 1, 0, 1, dataset=dataset, restored=restored)
    assert not check_request(request)
    assert ledger.answer(request, 0.0) == Answer()
    return ledger


def ranges_of(answer: Answer) -> list[tuple[str, int, int]]:
    return [(each.partition, each.first, each.stop) for piece in answer.leases if (each := piece.offsets)]


ROWS = StreamLayout("clicks", "log", 4, StreamTerms()).follow_rows(
    {"a": [(0, 10), (12, 20), (29, 30)], "b": [], "c": [(5, 9)]}
)


def test_a_ledger_that_begins_anew_leases_what_rows_lack_and_nothing_else() -> None:
    ledger = opened_with(TABLES, ROWS)
    later = Request("open", "clicks", 1, 0, 1, dataset=TABLES, restored=Position())
    assert ledger.answer(later, 0.0) == Answer(), "who comes later changes nothing"
    ledger.turn(2)
    request = Request("open", "clicks", 2, 0, 1, dataset=TABLES, restored=Position())
    assert ledger.answer(request, 0.0) == Answer()
    known = OffsetRange("a", 0, 33), OffsetRange("b", 0, 2), OffsetRange("c", 0, 9), OffsetRange("d", 7, 8)
    answer = ledger.answer(Request("exchange", "clicks", 2, 0, 1, sequence=1, wants=20, known=known), 0.0)
    assert answer
    todo = [("a", 10, 12), ("a", 20, 24), ("a", 24, 28), ("a", 28, 29), ("c", 0, 4), ("c", 4, 5)]
    assert ranges_of(answer) == [*todo, ("a", 30, 33), ("b", 0, 2), ("d", 7, 8)]
    assert answer.floors == tuple(OffsetRange(*each) for each in [("a", 0, 10), ("b", 0, 0), ("c", 0, 0), ("d", 0, 7)])
    assert ledger.progress.records == 0


def test_no_floor_is_beyond_what_somebody_has_and_none_goes_back() -> None:
    ledger = opened_with(TABLES, Position())
    first = told(ledger, 1, OffsetRange("a", 3, 40), wants=3)
    assert first.floors == (OffsetRange("a", 0, 3),) and len(first.leases) == 3
    marks = Mark(first.leases[0].shard_index), Mark(first.leases[2].shard_index)
    request = Request("exchange", "clicks", 1, 0, 1, sequence=2, wants=1, marks=marks)
    second = ledger.answer(request, 0.0)
    assert second and second.floors == (OffsetRange("a", 0, 7),)
    assert ledger.answer(request, 0.0) == second, "asked again"
    assert all(not owner.answer.floors for owner in ledger.state.owners if owner.answer), "they are not stored"


def test_rows_that_go_back_do_not_pass_over_what_came_after_the_first_look() -> None:
    dataset = replace(TABLES, stream=StreamTerms(start="latest"))
    ledger = opened_with(dataset, Position())
    told(ledger, 1, OffsetRange("a", 0, 8), OffsetRange("b", 0, 3))
    origins = ledger.state.origins
    assert origins == (OffsetRange("a", 8, 8), OffsetRange("b", 3, 3))
    grown = OffsetRange("a", 0, 10), OffsetRange("b", 0, 5)
    for restored, found in (
        (Position(), [("a", 8, 10), ("b", 3, 5)]),
        (Position(partitions=(OffsetRange("a", 9, 9),)), [("b", 3, 5), ("a", 9, 10)]),
    ):
        assert ranges_of(told(opened_with(dataset, restored, origins), 1, *grown, wants=5)) == found
    there = Position(partitions=(OffsetRange("a", 9, 9), OffsetRange("b", 3, 3)))
    answer = told(opened_with(dataset, there), 1, *grown, OffsetRange("c", 0, 2), wants=5)
    assert ranges_of(answer) == [("b", 3, 5), ("c", 0, 2), ("a", 9, 10)], "in another run, too"


@pytest.mark.parametrize("run", ["same", "another"])
def test_a_stream_with_an_end_keeps_it_when_rows_go_back_and_begins_with_a_look_in_another_run(run: str) -> None:
    dataset = replace(TABLES, stream=StreamTerms(follow=False))
    origins = (OffsetRange("a", 0, 6),) if run == "same" else ()
    ledger = opened_with(dataset, Position(partitions=(OffsetRange("a", 2, 2),)), origins)
    assert not told(ledger, 1, wants=0).ended and not ledger.finished
    answer = told(ledger, 2, OffsetRange("a", 0, 9), wants=5)
    assert ranges_of(answer) == [("a", 2, 6)] if run == "same" else [("a", 2, 6), ("a", 6, 9)]


def test_what_is_gone_after_what_rows_have_ends_the_job() -> None:
    answer = told(opened_with(TABLES, ROWS), 1, OffsetRange("b", 1, 2))
    assert answer.leases
    ledger = opened_with(replace(TABLES, stream=StreamTerms()), ROWS)
    answer = told(ledger, 1, OffsetRange("b", 1, 2))
    assert (answer.kind, "offsets 0 to 0 of partition 'b' are gone" in answer.text) == ("refused", True)


def test_rows_with_many_holes_make_no_large_ledger() -> None:
    layout = StreamLayout("clicks", "log", 4, StreamTerms())
    position = layout.follow_rows({"a": [(0, 10), (10**9, 10**9 + 5)], "b": [(0, 1), (3, 4)]})
    assert [piece.offsets for piece in position.todo] == [OffsetRange("b", 1, 3)]
    assert position.partitions == (OffsetRange("a", 10, 10), OffsetRange("b", 4, 4))


def test_its_ledger_does_not_grow_with_offsets() -> None:
    ledger = opened(StreamTerms())
    sizes: list[int] = []
    for turn in range(1, 400):
        known = OffsetRange("a", 0, 1000 + 4 * turn)
        marks = tuple(
            Mark(index) for owner in ledger.state.owners for index in [each.shard_index for each in owner.leases]
        )
        ledger.answer(Request("exchange", "clicks", 1, 0, 1, sequence=turn, wants=2, marks=marks, known=(known,)), 0.0)
        sizes.append(len(written(ledger.state)))
    assert max(sizes) <= sizes[0] + 40  # digits


@pytest.mark.parametrize("ranges", ["[0,0,1]", "[1,0,0,4]", "[0,1,0,4]", '["a"]'])
def test_a_damaged_range_is_not_read(ranges: str) -> None:
    state = replace(fresh(CLICKS), returned=(Piece(0, offsets=OffsetRange("a", 0, 4)),))
    value = written(state)
    assert b'"ranges":[0,0,0,4]' in value
    with pytest.raises(BadState):
        read(value.replace(b'"ranges":[0,0,0,4]', f'"ranges":{ranges}'.encode()))
