"""The workers' clocks under one leadership, on a clock that jumps."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from elastic_run.master.data.clock_service import ANSWER_SECONDS, ClockService
from elastic_run.master.data.current_round import Current
from elastic_run.master.data.worker_clocks import AWAITED_SECONDS, SILENT_SECONDS, LowestClock, NodeClocks, WorkerClock
from elastic_run.rendezvous.rpc.envelope import Caller

from ....doubles.virtual_loop import VirtualLoop

CURRENT = Current("run", 3, True, 2, frozenset({"A1", "B1"}), {"A1": range(1), "B1": range(1, 2)}, {"B1": 2})
"""Node B continues since round 2."""


class Bench:
    """One leadership.

    Attributes:
        current, ended: what the master knows of the round.
    """

    def __init__(self, adopted: int = 0) -> None:
        self.current = CURRENT
        self.ended: frozenset[int] = frozenset()
        self.said: list[str] = []
        self.now = asyncio.get_running_loop().time
        self.service = ClockService(
            lambda: self.current, lambda: self.ended, adopted, say=self.said.append, now=self.now
        )

    def ask(self, node: str, clock: int, count: int, wants: int = 0, **more: Any) -> "asyncio.Task[LowestClock]":
        rank, round = {"A": (0, 3), "B": (1, 2)}[node]
        told = NodeClocks((WorkerClock(rank, round, count, clock, **more),), 0, wants)
        return asyncio.create_task(self.service.answer(told, Caller("run", node, f"{node}1")))


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())


def test_who_waits_is_answered_when_the_slowest_has_pushed() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ask("B", 0, 1)
        waiting = bench.ask("A", 2, 1, wants=1)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await bench.ask("B", 1, 2)
        assert (await waiting, bench.now()) == (LowestClock(1), 0.5)

    play(scenario)


def test_who_waits_for_long_is_told_for_whom() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ask("B", 0, 1)
        answer = await bench.ask("A", 2, 1, wants=1)
        assert answer.lowest == 0 and answer.why.startswith("rank 1 has made 0 pushes")
        assert bench.now() == ANSWER_SECONDS

    play(scenario)


def test_a_round_without_the_slowest_lets_the_others_go_on_at_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ask("B", 0, 1)
        waiting = bench.ask("A", 2, 1, wants=2)
        await asyncio.sleep(0.1)
        bench.current = replace(CURRENT, round=4, ranks={"A1": range(1)}, since={"A1": 3})
        bench.service.look_again()
        assert (await waiting, bench.now()) == (LowestClock(2), 0.1)

    play(scenario)


def test_while_the_job_is_suspended_nobody_is_missed() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ask("B", 0, 1)
        bench.current = replace(CURRENT, running=False)
        assert (await bench.ask("A", 2, 1, wants=1)).lowest == 0

    play(scenario)


def test_a_silent_worker_is_said_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ask("B", 0, 1)
        await asyncio.sleep(SILENT_SECONDS)
        for count in (1, 2):
            assert (await bench.ask("A", 2, count, wants=2)).lowest == 2
        assert bench.said == [
            "rank 1 has made no step for a long time: max_staleness has nobody wait for that any more, until another "
            "push"
        ]

    play(scenario)


def test_a_new_master_lets_nobody_go_further_before_the_nodes_of_the_round_that_it_adopts_have_spoken() -> None:
    async def scenario() -> None:
        bench = Bench(adopted=2)  # node A was in none that another master opened
        waiting = bench.ask("A", 2, 1, wants=1)
        assert "1 nodes have not told" in (await waiting).why
        await bench.ask("B", 1, 9)
        assert (await bench.ask("A", 2, 2, wants=1)).lowest == 1
        late = Bench(adopted=2)
        await late.ask("A", 2, 1)
        await asyncio.sleep(AWAITED_SECONDS)
        assert (await late.ask("A", 2, 2, wants=2)).lowest == 2

    play(scenario)
