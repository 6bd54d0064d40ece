"""What waits for the store is asked again, told when that lasts, and ended where somebody cannot wait for ever."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from elastic_run.rendezvous.base.errors import Deposed, LeaseLost, StoreRefused, StoreUnavailable
from elastic_run.rendezvous.store.waits import Waits

from ....doubles.virtual_loop import VirtualLoop

SILENT = StoreUnavailable("no endpoint answered")


class Scene:
    """A store that says what a test picks, each time after a second."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.said: list[str] = []
        self.changes = 0
        self.error: Exception | None = SILENT
        self.waits = Waits(self.said.append, self.loop.time, self._count)

    def _count(self) -> None:
        self.changes += 1

    async def ask(self) -> str:
        await asyncio.sleep(1)
        if self.error:
            raise self.error
        return "answer"

    async def until(self, seconds: float) -> None:
        await asyncio.sleep(seconds - self.loop.time())


def live(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await body(Scene())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_a_short_wait_is_not_worth_a_word() -> None:
    async def body(scene: Scene) -> None:
        scene.loop.call_later(3, setattr, scene, "error", None)
        assert await scene.waits.until_answered("the news", scene.ask) == "answer"
        assert scene.said == [] and scene.waits.longest is None
        assert scene.changes > 0

    live(body)


def test_a_wait_that_lasts_is_told_once_a_minute_and_when_it_is_over() -> None:
    async def body(scene: Scene) -> None:
        scene.loop.call_later(130, setattr, scene, "error", None)
        assert await scene.waits.until_answered("the news", scene.ask) == "answer"
        *told, last = scene.said
        assert len(told) == 3
        assert told[0] == (
            "the store does not answer in time (no endpoint answered); the news has waited for 5 s; "
            "retrying, and running workers continue"
        )
        assert last.startswith("the store answered after 13")

    live(body)


def test_what_many_wait_for_is_told_once() -> None:
    async def body(scene: Scene) -> None:
        scene.loop.call_later(20, setattr, scene, "error", None)
        await asyncio.gather(*(scene.waits.until_answered("the news", scene.ask) for _ in range(50)))
        assert len(scene.said) == 2

    live(body)


def test_what_one_has_been_answered_another_waits_for_still() -> None:
    async def body(scene: Scene) -> None:
        async def first() -> str:
            await asyncio.sleep(1)
            if asyncio.get_running_loop().time() < 20:
                raise SILENT
            return "answer"

        scene.loop.call_later(40, setattr, scene, "error", None)
        answered = asyncio.create_task(scene.waits.until_answered("the news", first))
        await scene.until(2)
        waiting = asyncio.create_task(scene.waits.until_answered("the news", scene.ask))
        await answered
        wait = scene.waits.longest
        assert wait is not None and wait.since == 2.0
        await waiting
        told, last = scene.said
        assert "has waited for 5 s" in told and last.endswith(": the news continues")
        assert scene.waits.longest is None

    live(body)


def test_a_refusal_is_told_at_once() -> None:
    async def body(scene: Scene) -> None:
        for _ in range(3):
            scene.waits.failed("the report", StoreRefused("no space left"))
            await asyncio.sleep(1)
        assert scene.said == [
            "the store refuses (no space left); the report is delayed; retrying, and running workers continue"
        ]

    live(body)


def test_a_lease_that_ended_before_it_was_used_is_no_silence() -> None:
    async def body(scene: Scene) -> None:
        scene.waits.failed("the report", LeaseLost("lease 7 has expired"))
        wait = scene.waits.longest
        assert wait is not None
        assert wait.words(60.0) == (
            "the store takes longer than a lease lasts (lease 7 has expired); the report has waited for 60 s"
        )

    live(body)


def test_the_longest_wait_is_known_with_its_reason() -> None:
    async def body(scene: Scene) -> None:
        await scene.until(10)
        scene.waits.failed("the report", SILENT)
        scene.waits.failed("the news", StoreRefused("no"), began=4.0)
        await scene.until(100)
        wait = scene.waits.longest
        assert wait is not None and wait.since == 4.0
        assert wait.words(100.0) == "the store refuses (no); the news has waited for 96 s"
        scene.waits.done("the news")
        assert scene.waits.longest is not None and scene.waits.longest.since == 10.0

    live(body)


def test_a_wait_ends_at_a_deadline_in_words() -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(StoreUnavailable, match=r"no endpoint answered.*the news has waited for 1\d s"):
            await scene.waits.until_answered("the news", scene.ask, within=10)
        assert scene.loop.time() < 13
        assert scene.waits.longest is None

    live(body)


def test_nobody_waits_any_more_who_was_cancelled_or_told_something_else() -> None:
    async def body(scene: Scene) -> None:
        task = asyncio.create_task(scene.waits.until_answered("the news", scene.ask))
        await scene.until(8)
        assert scene.waits.longest is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert scene.waits.longest is None
        scene.error = Deposed("another leads")
        with pytest.raises(Deposed):
            await scene.waits.until_answered("the news", scene.ask)
        assert scene.waits.longest is None

    live(body)
