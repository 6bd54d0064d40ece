"""The small parts of an agent: its tasks, its interrupts, the notice, the lines that are said once, its patience."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from elastic_run.elastic_agent.event import Interrupt
from elastic_run.elastic_agent.node.preemption import REPEAT_SECONDS, noticed
from elastic_run.elastic_agent.say_once import SayOnce
from elastic_run.elastic_agent.view import store_gone
from elastic_run.rendezvous.errors import StoreRefused
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.store.contract import Health
from elastic_run.rendezvous.store.waits import Wait
from elastic_run.rendezvous.tasks import Tasks


def live(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene

    asyncio.run(bounded())


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class TestTasks:
    def test_an_error_by_which_one_ended_is_raised_at_the_next_look(self) -> None:
        async def fails() -> None:
            raise RuntimeError("no")

        async def scene() -> None:
            ended = asyncio.Event()
            tasks = Tasks(ended.set)
            tasks.begin(fails(), "one")
            tasks.check()
            await ended.wait()
            with pytest.raises(RuntimeError, match="no"):
                tasks.check()
            await tasks.close()

        live(scene())

    def test_one_that_is_ended_says_nothing_and_those_that_are_left_end_with_the_agent(self) -> None:
        async def scene() -> None:
            tasks = Tasks(lambda: None)
            one, other = tasks.begin(for_ever(), "one"), tasks.begin(for_ever(), "other")
            tasks.end(one, None)
            await asyncio.wait({one})
            tasks.check()
            assert one.cancelled() and not other.done()
            await tasks.close()
            assert other.cancelled()

        live(scene())


class TestAnInterrupt:
    def test_gives_up_the_work_only_where_that_is_pointless_now(self) -> None:
        async def scene() -> None:
            interrupt, pointless, begun = Interrupt(), False, asyncio.Event()

            async def work() -> None:
                begun.set()
                await for_ever()

            guarded = asyncio.create_task(interrupt.unless(work(), lambda: pointless))
            await begun.wait()
            interrupt.set()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not guarded.done()
            pointless = True
            interrupt.set()
            await guarded

        live(scene())

    def test_raises_what_the_work_raises(self) -> None:
        async def fails() -> None:
            raise RuntimeError("no")

        async def scene() -> None:
            with pytest.raises(RuntimeError, match="no"):
                await Interrupt().unless(fails(), lambda: False)

        live(scene())


def test_a_second_signal_kills_but_not_one_that_repeats_the_first() -> None:
    assert noticed("none", 1e9) == "leave"
    assert noticed("leave", REPEAT_SECONDS / 2) == "leave"
    assert noticed("leave", REPEAT_SECONDS) == "kill"
    assert noticed("kill", 100.0) == "kill"


def test_a_line_is_said_when_it_is_another_one_than_before_on_its_topic() -> None:
    said: list[str] = []
    say_once = SayOnce(said.append)
    for topic, line in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", ""), ("a", "2")):
        say_once(topic, line)
    assert said == ["1", "1", "2", "2"]


class TestPatience:
    NOW = 100.0
    AWAY = Health(reachable=False, since=20.0, detail="connection refused")
    HERE = Health(reachable=True, since=0.0, detail="")
    WELL = (Exit(1, 0, 0, 100, 0),)

    def gone(self, health: Health, wait: Wait | None = None, **changes: Any) -> str:  # Any: the function's own
        given: dict[str, Any] = {"alive": 0, "total": 1, "idle_since": 30.0, "patience": 60.0, "now": self.NOW}
        exits = changes.pop("exits", self.WELL)
        return store_gone(health, wait, exits, **(given | changes))

    def test_with_a_store_that_does_not_answer_ends_so_long_after_the_workers_have(self) -> None:
        assert "has not answered for 80 s" in self.gone(self.AWAY)
        assert self.gone(self.AWAY, idle_since=50.0) == ""

    def test_does_not_depend_on_when_workers_that_still_run_were_idle(self) -> None:
        assert self.gone(self.AWAY, alive=1, exits=(), idle_since=self.NOW)

    def test_with_a_store_that_refuses_is_the_same(self) -> None:
        refused = Wait("this node's report", [20.0], StoreRefused("no space left"), 0.0)
        assert "no space left" in self.gone(self.HERE, refused)
        assert self.gone(self.HERE, refused, patience=90.0) == ""
        assert self.gone(self.HERE) == ""

    def test_ends_with_a_word_on_how_the_workers_did(self) -> None:
        assert "have all ended with exit code 0" in self.gone(self.AWAY)
        assert "are not running" in self.gone(self.AWAY, exits=(Exit(1, 0, 0, 100, 1),))
