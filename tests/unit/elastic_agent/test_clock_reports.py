"""What an agent tells each of the job's masters of its workers' clocks, on a clock that jumps."""

import asyncio

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.elastic_agent.clock_reports import ClockReports
from elastic_run.master.data.worker_clocks import LowestClock, NodeClocks, WorkerClock
from elastic_run.rendezvous.base.tasks import Tasks
from elastic_run.rendezvous.wire.values import decode, encode

from ...doubles.virtual_loop import VirtualLoop


def test_an_agent_tells_the_next_master_all_that_its_workers_have_said() -> None:
    async def scenario() -> None:
        told: list[NodeClocks] = []
        news = asyncio.Event()

        async def ask(call: Call) -> Back:
            told.append(decode(NodeClocks, call.told.encode()))
            news.set()
            return Back(told=encode(LowestClock(5)).decode())

        tasks = Tasks()
        reports = ClockReports(ask, tasks, print)
        first, second = WorkerClock(0, 1, 1, 6), WorkerClock(1, 1, 1, 7)
        for each in (first, second):
            asked = Call("clocks", 1, told=encode(NodeClocks((each,), wants=4)).decode())
            assert decode(LowestClock, (await reports.answer(asked)).told.encode()) == LowestClock(5)
        assert told == [NodeClocks((first,), 0, 4), NodeClocks((first, second), 5, 4)]
        news.clear()
        await news.wait()
        assert told[2:] == [NodeClocks((first, second), 5)]
        assert (await reports.answer(Call("clocks", 1, told="{"))).text
        await tasks.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())


def test_what_goes_wrong_is_said_once_and_all_is_told_again() -> None:
    async def scenario() -> None:
        said: list[str] = []
        answers = iter([encode(LowestClock(5)).decode(), "{", "{", encode(LowestClock(6)).decode(), "{"])
        over = asyncio.Event()

        async def ask(_: Call) -> Back:
            if (told := next(answers, None)) is None:
                over.set()
            return Back(told=told or encode(LowestClock(7)).decode())

        tasks = Tasks()
        reports = ClockReports(ask, tasks, said.append)
        await reports.answer(Call("clocks", 1, told=encode(NodeClocks((WorkerClock(0, 1, 1, 6),))).decode()))
        await over.wait()
        assert len(said) == 2 and all(line.startswith("cannot tell the job's master") for line in said)
        await tasks.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())
