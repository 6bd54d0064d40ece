"""The ledgers under one leadership: what is answered is durable, in as few transactions as can be, or is not answered.

The clock jumps, so a wait without end is an error and a long one takes no time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from elastic_run.master.data import ledger_service
from elastic_run.master.data.current_round import Current
from elastic_run.master.data.ledger import (
    Answer,
    Dataset,
    Mark,
    OffsetRange,
    Piece,
    Position,
    Request,
    StreamTerms,
    Tracking,
)
from elastic_run.master.data.ledger_service import PATIENCE, Ledgers
from elastic_run.master.data.shard import MAX_NAME
from elastic_run.master.data.stored_ledger import read
from elastic_run.rendezvous import election
from elastic_run.rendezvous.base.errors import Deposed, MaybeApplied, StoreUnavailable
from elastic_run.rendezvous.election import Leadership
from elastic_run.rendezvous.header import Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.rpc.envelope import Caller
from elastic_run.rendezvous.store.contract import Compare, Delete, Operation, Put, TxnResult
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.waits import Waits

from ....doubles.virtual_loop import VirtualLoop

KEYS = Keys("job")
DATA = Dataset("data", size=100, shard_size=10, shards=10)
QUEUE = replace(DATA, name="queue", tracking="ack")
ME = Caller("run", "a", "A1")
NODES = frozenset({"A1", "B1"})
CURRENT = Current("run", 1, True, 1, NODES)
ENOUGH = 300.0
"""Seconds, on the clock that jumps."""

LOST = MaybeApplied("the answer was lost")
SILENT = StoreUnavailable("no answer")


class Faulty(MemoryStore):
    """Counts the ledgers' transactions, and lets the next ones go wrong.

    Attributes:
        puts: how many values each applied transaction has written, in order.
        faults: what happens to the next attempts: LOST is raised after it was applied, SILENT instead of that.
        gate: transactions wait for it; `waiting` counts those that do.
        counting: the ledgers' have begun.
        attempts: every one of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[int] = []
        self.faults: list[StoreUnavailable] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.counting = False
        self.attempts: list[tuple[Sequence[Compare], Sequence[Operation]]] = []

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        if not self.counting:
            return await super().txn(compares, operations, idempotent=idempotent)
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        self.attempts.append((compares, operations))
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and fault is SILENT:
            raise fault
        result = await super().txn(compares, operations, idempotent=idempotent)
        if result.succeeded:
            self.puts.append(len(operations))
        if fault:
            raise fault
        return result


class Asked(Ledgers):
    """Ledgers that a node of the round asks, where nothing else is said."""

    async def answer(self, request: Request, caller: Caller = ME) -> Answer:
        return await super().answer(request, caller)


@dataclass
class Bench:
    """One job's ledgers, and who leads them."""

    store: Faulty = field(default_factory=Faulty)
    said: list[str] = field(default_factory=list[str])
    current: Current | None = CURRENT
    world: int = 1
    ended: frozenset[int] = frozenset()
    leaders: int = 0
    leadership: Leadership | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    async def lead(self) -> "Asked":
        """Another master leads; whoever led before is deposed, and does not know it."""
        self.store.counting = False
        self.leaders += 1
        await self.store.txn([], [Delete(KEYS.leader)])
        won = await election.campaign(self.store, KEYS, Leader("n", str(self.leaders), ""), 0)
        assert isinstance(won, Leadership)
        self.leadership = won
        self.store.counting = True
        return self.same()

    def same(self) -> "Asked":
        """The same node's master begins anew, under the same leadership."""
        assert self.leadership is not None
        ledgers = Asked(
            self.store,
            KEYS,
            self.leadership,
            lambda: self.current and replace(self.current, world=self.world),
            say=self.said.append,
            now=asyncio.get_running_loop().time,
            waits=Waits(self.said.append, asyncio.get_running_loop().time),
            ended=lambda: self.ended,
        )
        self.tasks.append(asyncio.create_task(ledgers.run()))
        return ledgers

    async def stored(self, key: str) -> bytes:
        found = await self.store.get(key)
        assert found is not None
        return found.value

    async def deposed(self) -> None:
        """The last master ends because another leads."""
        with pytest.raises(Deposed):
            await self.tasks[-1]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def play(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        try:
            async with asyncio.timeout(ENOUGH):
                await scenario(bench)
        finally:
            await bench.end()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def opens(rank: int = 0, world: int = 1, dataset: Dataset = QUEUE, round: int = 1, **more: Any) -> Request:
    return Request("open", dataset.name, round, rank, world, dataset=dataset, **more)


def wants(rank: int = 0, world: int = 1, number: int = 1, wants: int = 1, round: int = 1, **more: Any) -> Request:
    return Request("exchange", "queue", round, rank, world, sequence=number, wants=wants, **more)


async def ticks() -> None:
    """What can happen now has happened."""
    await asyncio.sleep(0.001)


def shard_indices(answer: Answer) -> list[int]:
    assert answer.kind == "ok", answer
    return [piece.shard_index for piece in answer.leases]


def test_nothing_is_read_or_written_without_a_request() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        ledgers.look()
        await ticks()
        assert bench.store.attempts == []

    play(scenario)


def test_a_lease_is_in_the_store_before_its_worker_hears_of_it() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        assert await ledgers.answer(opens()) == Answer()
        bench.store.gate.clear()
        asked = asyncio.create_task(ledgers.answer(wants(wants=2)))
        await ticks()
        assert not asked.done()
        bench.store.gate.set()
        assert shard_indices(await asked) == [0, 1]
        state = read(await bench.stored(KEYS.queue("queue")))
        assert state.owners[0].leases == (Piece(0), Piece(1))

    play(scenario)


def test_what_comes_while_a_transaction_is_on_its_way_is_written_by_one() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 9
        ledgers = await bench.lead()
        bench.store.gate.clear()
        first = asyncio.create_task(ledgers.answer(opens(0, 9)))
        await ticks()
        others = [asyncio.create_task(ledgers.answer(wants(rank, 9))) for rank in range(9)]
        other = asyncio.create_task(ledgers.answer(opens(0, 9, DATA)))
        await ticks()
        assert bench.store.waiting == 1
        bench.store.gate.set()
        assert await first == Answer()
        assert [shard_indices(await each) for each in others] == [[rank] for rank in range(9)]
        assert bench.store.puts == [1, 2]
        other.cancel()

    play(scenario)


def test_requests_of_one_batch_are_applied_in_the_order_in_which_they_came() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 3
        ledgers = await bench.lead()
        await ledgers.answer(opens(0, 3))
        asked = [asyncio.create_task(ledgers.answer(wants(rank, 3))) for rank in (2, 0, 1)]
        assert [shard_indices(await each) for each in asked] == [[0], [1], [2]]

    play(scenario)


def test_the_same_request_is_answered_the_same_by_the_next_master() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        assert shard_indices(await ledgers.answer(wants(wants=3))) == [0, 1, 2]
        assert [(each.name, each.leased) for each in ledgers.progress] == [(QUEUE.name, 3)]
        ledgers = await bench.lead()
        assert ledgers.progress == ()
        assert shard_indices(await ledgers.answer(wants(wants=3))) == [0, 1, 2]
        assert shard_indices(await ledgers.answer(wants(number=2))) == [3]

    play(scenario)


@pytest.mark.parametrize("faults", [[LOST], [SILENT, LOST], [LOST, SILENT], [SILENT, SILENT]])
def test_an_answer_that_the_store_has_lost_is_not_asked_for_twice(faults: list[StoreUnavailable]) -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        bench.store.faults = list(faults)
        assert shard_indices(await ledgers.answer(wants())) == [0]
        assert shard_indices(await ledgers.answer(wants(number=2))) == [1]
        assert bench.store.puts == [1, 1, 1]

    play(scenario)


def test_a_late_attempt_of_an_earlier_put_undoes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        await ledgers.answer(wants())
        late = bench.store.attempts[-1]
        await ledgers.answer(wants(number=2))
        assert not (await bench.store.txn(*late)).succeeded
        ledgers = await bench.lead()
        assert shard_indices(await ledgers.answer(wants(number=2))) == [1]

    play(scenario)


def test_a_put_of_the_same_leadership_that_comes_late_ends_the_master_that_did_not_know_of_it() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        before = await bench.lead()
        await before.answer(opens(0, 2))
        bench.store.faults = [SILENT]
        asked = asyncio.create_task(before.answer(wants(0, 2)))
        await ticks()
        late = bench.store.attempts[-1]
        bench.tasks[-1].cancel()
        with pytest.raises(Deposed):
            await asked
        after = bench.same()
        assert await after.answer(opens(0, 2)) == Answer()  # it has read the ledger
        assert (await bench.store.txn(*late)).succeeded
        with pytest.raises(Deposed):
            await after.answer(wants(1, 2))
        await bench.deposed()
        third = bench.same()
        assert shard_indices(await third.answer(wants(0, 2))) == [0]
        assert shard_indices(await third.answer(wants(1, 2))) == [1]

    play(scenario)


@pytest.mark.parametrize("request_", [wants(number=2), wants(), wants(number=7)], ids=["new", "known", "refused"])
def test_a_deposed_master_answers_nothing(request_: Request) -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        await ledgers.answer(wants())
        task = bench.tasks[-1]
        value = await bench.stored(KEYS.queue("queue"))
        await bench.lead()
        with pytest.raises(Deposed):
            await ledgers.answer(request_)
        with pytest.raises(Deposed):
            await task
        with pytest.raises(Deposed):
            await ledgers.answer(request_)
        assert await bench.stored(KEYS.queue("queue")) == value

    play(scenario)


def test_a_store_that_is_silent_for_long_makes_an_answer_late_but_not_another() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        bench.store.gate.clear()
        later = await ledgers.answer(wants())
        assert later.kind == "later" and "store" in later.text
        bench.store.gate.set()
        assert shard_indices(await ledgers.answer(wants())) == [0]

    play(scenario)


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_who_opens_waits_for_the_other_ranks_and_is_told_for_whom() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 3
        ledgers = await bench.lead()
        loop = asyncio.get_running_loop()
        began = loop.time()
        later = await ledgers.answer(opens(0, 3, DATA))
        assert later.kind == "later" and "still missing: ranks 1, 2" in later.text
        assert loop.time() - began == pytest.approx(PATIENCE)  # pyright: ignore[reportUnknownMemberType]
        asked = [asyncio.create_task(ledgers.answer(opens(rank, 3, DATA))) for rank in range(3)]
        assert [await each for each in asked] == [Answer()] * 3

    play(scenario)


def test_a_cut_is_answered_when_the_last_rank_has_asked_for_it() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        ledgers = await bench.lead()
        opened = [asyncio.create_task(ledgers.answer(opens(rank, 2, DATA))) for rank in range(2)]
        assert [await each for each in opened] == [Answer()] * 2

        def cuts(rank: int) -> Request:
            return Request("cut", "data", 1, rank, 2, sequence=1, cut=1, step=5)

        first = asyncio.create_task(ledgers.answer(cuts(0)))
        await ticks()
        assert not first.done()
        assert (await ledgers.answer(cuts(1))).position == Position()
        assert (await first).position == Position()

    play(scenario)


def test_who_waits_for_a_rank_that_has_ended_is_refused() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 3
        ledgers = await bench.lead()
        first = asyncio.create_task(ledgers.answer(opens(0, 3, DATA)))
        await ticks()
        assert not first.done()
        bench.ended = frozenset({2})
        ledgers.look()
        text = (await first).text
        assert "rank 0 waits for rank 2, which exited with code 0 and will never open dataset 'data'" in text

    play(scenario)


def test_what_a_worker_that_has_ended_had_goes_to_who_waits_under_a_higher_lease() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        ledgers = await bench.lead()
        await ledgers.answer(opens(0, 2, replace(QUEUE, alone=True)))
        first = await ledgers.answer(wants(0, 2, wants=10))
        waits = asyncio.create_task(ledgers.answer(wants(1, 2, wants=2)))
        await ticks()
        assert not waits.done()
        bench.ended = frozenset({0})
        ledgers.look()
        answer = await waits
        assert (shard_indices(first), shard_indices(answer)) == ([*range(10)], [0, 1])
        assert answer.lease > first.lease > 0
        assert shard_indices(await (await bench.lead()).answer(wants(1, 2, 2))) == [2]

    play(scenario)


def test_who_waits_for_work_gets_what_another_gives_back() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        ledgers = await bench.lead()
        await ledgers.answer(opens(0, 2))
        first = shard_indices(await ledgers.answer(wants(0, 2, wants=9)))
        assert shard_indices(await ledgers.answer(wants(1, 2))) == [9]
        done = asyncio.create_task(ledgers.answer(wants(1, 2, 2, marks=(Mark(9),))))
        await ticks()
        assert shard_indices(await done) == [8]  # the last of those that wait in rank 0's queue, a second time
        done = asyncio.create_task(ledgers.answer(wants(1, 2, 3, marks=(Mark(8),))))
        assert shard_indices(await done) == [7]
        marks = tuple(Mark(shard_index) for shard_index in first)
        assert (await ledgers.answer(wants(0, 2, 2, marks=marks))).ended
        last = await ledgers.answer(wants(1, 2, 4))
        assert last.ended and last.lost == (7,)

    play(scenario)


def test_who_waits_for_a_slow_worker_gets_its_shard_when_it_is_due() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        ledgers = await bench.lead()
        await ledgers.answer(opens(0, 2))
        await ledgers.answer(wants(0, 2, wants=9))
        assert shard_indices(await ledgers.answer(wants(1, 2))) == [9]
        marks = tuple(Mark(shard_index) for shard_index in range(8))
        await asyncio.sleep(8.0)
        await ledgers.answer(wants(0, 2, 2, wants=0, marks=marks))  # one second a shard; index 8 is its last
        began = asyncio.get_running_loop().time()
        assert shard_indices(await ledgers.answer(wants(1, 2, 2, marks=(Mark(9),)))) == [8]
        assert 1.0 < asyncio.get_running_loop().time() - began < PATIENCE

    play(scenario)


def test_who_hangs_up_is_forgotten() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        ledgers = await bench.lead()
        gone = asyncio.create_task(ledgers.answer(opens(0, 2, DATA)))
        await ticks()
        gone.cancel()
        again = asyncio.create_task(ledgers.answer(opens(0, 2, DATA)))
        assert await ledgers.answer(opens(1, 2, DATA)) == Answer()
        assert await again == Answer()

    play(scenario)


def test_a_request_of_another_world_size_is_refused_before_any_ledger_looks_at_its_ranks() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        ledgers = await bench.lead()
        await ledgers.answer(opens(0, 2))
        for request in (opens(1, 30_000_000, DATA), wants(0, 30_000_000)):
            refused = await ledgers.answer(request)
            assert refused.kind == "refused" and "30000000, but round 1 has 2" in refused.text

    play(scenario)


# -- rounds -----------------------------------------------------------------------------------------------------------


def test_a_round_that_is_over_is_stale_and_one_that_is_not_known_yet_waits() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        bench.current = None
        asked = asyncio.create_task(ledgers.answer(opens(round=2)))
        await ticks()
        bench.current = Current("run", 1, True, 1, NODES)
        ledgers.look()
        await ticks()
        assert not asked.done()
        bench.current = Current("run", 2, True, 1, NODES)
        ledgers.look()
        assert await asked == Answer()
        assert (await ledgers.answer(opens(round=1))).kind == "stale"
        later = await ledgers.answer(opens(round=3))
        assert later.kind == "later" and "round 3" in later.text

    play(scenario)


@pytest.mark.parametrize("another", [False, True])
def test_a_job_that_goes_back_leases_anew_what_was_done_with_tables_and_once(another: bool) -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        tables = replace(QUEUE, name="tables", alone=True)
        for name, dataset in (("queue", QUEUE), ("tables", tables)):
            await ledgers.answer(opens(dataset=dataset))
            assert shard_indices(await ledgers.answer(replace(wants(wants=2), name=name))) == [0, 1]
            done = replace(wants(number=2), name=name, marks=(Mark(0), Mark(1)))
            assert shard_indices(first := await ledgers.answer(done)) == [2]
        bench.current = replace(CURRENT, round=2, rows_from=2)
        if another:
            ledgers = await bench.lead()
        assert (await ledgers.answer(replace(done, sequence=3))).kind == "stale"
        for name, dataset, left in (("queue", QUEUE, 2), ("tables", tables, 0)):
            await ledgers.answer(opens(dataset=dataset, round=2))
            again = await ledgers.answer(replace(wants(round=2), name=name))
            assert shard_indices(again) == [left]
        assert again.lease > first.lease
        bench.current = replace(CURRENT, round=3, rows_from=2)
        await ledgers.answer(replace(wants(round=2, number=2), name="tables", marks=(Mark(0),)))
        await ledgers.answer(opens(dataset=tables, round=3))
        assert shard_indices(await ledgers.answer(replace(wants(wants=3, round=3), name="tables"))) == [0, 1, 2]

    play(scenario)


def test_a_stream_that_trains_tables_goes_back_as_a_stream_to_what_their_rows_have() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        stream = replace(QUEUE, name="stream", alone=True, shuffle=False, stream=StreamTerms(start="latest"))
        ask = partial(replace, wants(wants=2), name="stream")
        await ledgers.answer(opens(dataset=stream))
        await ledgers.answer(ask(known=(OffsetRange("a", 0, 5),)))
        grown = OffsetRange("a", 0, 25)
        assert len((await ledgers.answer(ask(sequence=2, known=(grown,)))).leases) == 2
        bench.current = replace(CURRENT, round=2, rows_from=2)
        await ledgers.answer(opens(dataset=stream, round=2, restored=Position(partitions=(OffsetRange("a", 7, 7),))))
        again = await ledgers.answer(ask(round=2, known=(grown,)))
        assert again.leases[0].offsets == OffsetRange("a", 7, 17) and again.floors == (OffsetRange("a", 0, 7),)

    play(scenario)


@pytest.mark.parametrize("caller", [Caller("run", "c", "C1"), Caller("run", "a", "A0"), Caller()])
def test_a_node_that_is_not_in_the_round_or_was_in_it_in_another_life_leases_nothing(caller: Caller) -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        for request in (opens(), wants()):
            answer = await ledgers.answer(request, caller)
            assert answer.kind == "stale" and f"node {caller.node} is not in round 1" in answer.text
        assert shard_indices(await ledgers.answer(wants())) == [0]
        bench.current = replace(CURRENT, incarnations=frozenset({caller.incarnation}), round=2)
        assert await ledgers.answer(opens(round=2), caller) == Answer()

    play(scenario)


def test_a_node_of_a_round_that_the_master_does_not_know_yet_waits_and_is_not_turned_away() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        newcomer = Caller("run", "c", "C1")
        asked = asyncio.create_task(ledgers.answer(opens(round=2), newcomer))
        await ticks()
        assert not asked.done()
        bench.current = replace(CURRENT, incarnations=frozenset({"C1"}), round=2)
        ledgers.look()
        assert await asked == Answer()

    play(scenario)


def test_a_suspended_job_leases_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        await ledgers.answer(opens())
        bench.current = Current("run", 2, False, 1, NODES)
        assert (await ledgers.answer(wants())).kind == "stale"
        assert (await ledgers.answer(opens(round=2))).kind == "later"

    play(scenario)


def test_what_lost_workers_had_is_leased_in_the_next_round_and_trouble_is_told_once() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        for round in range(1, 6):
            bench.current = Current("run", round, True, 1, NODES)
            await ledgers.answer(opens(round=round))
            assert shard_indices(await ledgers.answer(wants(round=round, wants=2))) == [0, 1]
            assert bench.said == (
                [
                    "3 rounds ended while a worker was processing shard 0 of dataset 'queue': does a record in that "
                    "shard "
                    "crash the worker?"
                ]
                if round > 3
                else []
            )

    play(scenario)


def test_workers_that_continue_have_what_they_had_and_get_what_a_lost_one_had() -> None:
    async def scenario(bench: Bench) -> None:
        ranks, b = {"A1": range(1), "B1": range(1, 2)}, Caller("run", "b", "B1")
        bench.world, bench.current = 2, Current("run", 1, True, 2, NODES, ranks)
        ledgers = await bench.lead()
        assert await ledgers.answer(opens(world=2, dataset=replace(QUEUE, size=20, shards=2))) == Answer()
        of_b = replace(wants(wants=1), rank=1, world=2)
        assert shard_indices(await ledgers.answer(replace(wants(wants=1), world=2))) == [0]
        assert shard_indices(await ledgers.answer(of_b, b)) == [1]
        waiting = asyncio.create_task(ledgers.answer(replace(of_b, sequence=2, marks=(Mark(1),)), b))
        await ticks()
        bench.current = Current("run", 2, True, 2, NODES, {"A2": range(1), **ranks}, {"B1": 1})
        ledgers.look()
        assert shard_indices(await waiting) == [0]
        assert (await ledgers.answer(replace(wants(number=2), world=2))).kind == "stale"  # its node has started anew
        ledgers = await bench.lead()
        assert shard_indices(await ledgers.answer(replace(of_b, sequence=2, marks=(Mark(1),)), b)) == [0]
        assert (await ledgers.answer(replace(of_b, round=2, wants=0), b)).kind == "ok"  # and B starts its rank anew
        assert (ledgers.progress[0].done, ledgers.progress[0].leased) == (1, 0)

    play(scenario)


def test_a_node_may_only_ask_for_the_ranks_that_it_has() -> None:
    async def scenario(bench: Bench) -> None:
        bench.current = Current("run", 1, True, 2, NODES, {"A1": range(1), "B1": range(1, 2)})
        ledgers = await bench.lead()
        forged = await ledgers.answer(replace(opens(), rank=1, world=2))
        assert forged.kind == "refused"
        assert "node a asks for rank 1, and has the ranks 0 to 0 of round 1" in forged.text
        assert "asks for rank" not in (await ledgers.answer(replace(opens(), rank=0, world=2))).text

    play(scenario)


def test_a_queue_goes_on_in_another_run_whose_rounds_count_from_1_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.current = Current("one", 7, True, 1, NODES)
        ledgers = await bench.lead()
        await ledgers.answer(opens(round=7))
        await ledgers.answer(wants(round=7, wants=2))
        await ledgers.answer(wants(round=7, number=2, wants=0, marks=(Mark(0),)))
        opened = opens(round=7, dataset=DATA, restored=Position(3))
        assert await ledgers.answer(opened) == Answer()

        bench.current = Current("two", 1, True, 1, NODES)
        ledgers = await bench.lead()
        assert await ledgers.answer(opens()) == Answer()
        assert shard_indices(await ledgers.answer(wants(wants=2))) == [1, 2]
        assert await ledgers.answer(opens(dataset=DATA)) == Answer()
        fresh = Request("exchange", "data", 1, 0, 1, sequence=1, wants=1)
        assert shard_indices(await ledgers.answer(fresh)) == [0]

        bench.current = Current("three", 1, True, 1, NODES)  # the same number as the round before
        ledgers = await bench.lead()
        assert await ledgers.answer(opens()) == Answer()
        assert shard_indices(await ledgers.answer(wants(wants=2))) == [1, 2]

    play(scenario)


def test_a_deposed_master_does_not_let_a_request_wait_for_ranks_that_ask_another() -> None:
    async def scenario(bench: Bench) -> None:
        bench.world = 2
        for request in (opens(0, 2, DATA), opens(0, 2, DATA, round=2)):
            ledgers = await bench.lead()
            task = bench.tasks[-1]
            await bench.lead()
            with pytest.raises(Deposed):
                await ledgers.answer(request)
            with pytest.raises(Deposed):
                await task

    play(scenario)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("open", "queue", 1, 0, 1), "without its dataset"),
        (wants(number=0), "without a number"),
        (wants(), "was not opened"),
        (opens(dataset=replace(QUEUE, name="x" * (MAX_NAME + 1))), "characters"),
        (opens(dataset=replace(QUEUE, name="\ud800")), "not a valid string"),
        (opens(dataset=replace(QUEUE, name="")), "characters"),
    ],
)
def test_what_cannot_be_is_refused_in_words(request_: Request, words: str) -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        refused = await ledgers.answer(request_)
        assert refused.kind == "refused" and words in refused.text
        assert await ledgers.answer(opens()) == Answer()

    play(scenario)


@pytest.mark.parametrize(("first", "second"), [("ack", "checkpoint"), ("checkpoint", "ack")])
def test_one_name_has_one_tracking_mode(first: Tracking, second: Tracking) -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        assert await ledgers.answer(opens(dataset=replace(QUEUE, tracking=first))) == Answer()
        for _ in range(2):
            refused = await ledgers.answer(opens(dataset=replace(QUEUE, tracking=second)))
            assert refused.kind == "refused" and "another name" in refused.text
            ledgers = await bench.lead()

    play(scenario)


def test_a_ledger_that_cannot_be_read_refuses_its_own_dataset_only() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.store.txn([], [Put(KEYS.queue("queue"), b'{"version":99}')])
        ledgers = await bench.lead()
        for request in (opens(), wants()):
            refused = await ledgers.answer(request)
            assert refused.kind == "refused" and KEYS.queue("queue") in refused.text
        assert await ledgers.answer(opens(dataset=DATA)) == Answer()

    play(scenario)


def test_what_does_not_fit_into_the_store_is_refused_and_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_service, "MAX_VALUE_BYTES", 500)

    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        large = replace(QUEUE, shards=1000)
        assert await ledgers.answer(opens(dataset=large)) == Answer()
        refused = await ledgers.answer(wants(wants=100))
        assert refused.kind == "refused" and "fewer shards ahead" in refused.text
        assert shard_indices(await ledgers.answer(wants())) == [0]

    play(scenario)


def test_more_ledgers_than_one_transaction_takes_are_written_by_several() -> None:
    async def scenario(bench: Bench) -> None:
        ledgers = await bench.lead()
        names = [f"queue {number}/ü" for number in range(150)]
        asked = [asyncio.create_task(ledgers.answer(opens(dataset=replace(QUEUE, name=name)))) for name in names]
        assert [await each for each in asked] == [Answer()] * 150
        assert bench.store.puts == [63, 63, 24]
        ledgers = await bench.lead()
        assert await ledgers.answer(opens(dataset=replace(QUEUE, name=names[-1]))) == Answer()
        assert bench.store.puts[3:] == [0]  # nothing changed; that this master leads was asked

    play(scenario)
