"""The node manager on a virtual clock, beside a platform that tells and does what a test says."""

import asyncio
from collections.abc import Callable, Sequence

from benchmarks.cluster.clock import run
from elastic_run.master.nodes.node_manager import NodeManager, Wanted
from elastic_run.master.nodes.platform import Observer, PlatformRefused
from elastic_run.master.nodes.reconcile import Demand, Plan
from elastic_run.master.nodes.replica import Launch, Replica, Unschedulable


class Silent:
    """Tells once of what there is, and again when a test says so; starts are noted, and nothing comes of them."""

    def __init__(self, *there: Replica, refuses: str = "") -> None:
        self.there = there
        self.refuses = refuses
        self.asked: list[float] = []
        self.stopped: list[tuple[str, int]] = []
        self.tell: Callable[[], None] = lambda: None

    async def follow(self, observe: Observer) -> None:
        self.tell = lambda: observe(self.there)
        self.tell()
        await asyncio.sleep(1e9)

    async def start(self, launch: Launch) -> None:
        self.asked.append(round(asyncio.get_running_loop().time(), 3))
        if self.refuses:
            raise PlatformRefused(self.refuses)

    async def stop(self, name: str) -> None:
        self.stopped.append((name, int(asyncio.get_running_loop().time())))
        self.there = tuple(each for each in self.there if each.name != name)
        self.tell()


def runs(index: int) -> Replica:
    return Replica(f"w-{index}", "", index, 0, 0, "running", 0.0)


async def managed(
    platform: Silent, seconds: float, wanted: int, told_at: Sequence[float] = ()
) -> tuple[list[str], list[Plan]]:
    """So many are wanted from the beginning; news at each of those times. What it said, and its plans."""
    loop = asyncio.get_running_loop()
    said: list[str] = []
    plans: list[Plan] = []
    manager = NodeManager(platform, said.append, loop.time, looked=lambda plan, _: plans.append(plan))
    manager.want(Wanted((Demand("", wanted, wanted),)))
    for moment in told_at:
        loop.call_at(moment, lambda: platform.tell())
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return said, plans


def test_what_nobody_tells_of_is_asked_for_again_each_time_later() -> None:
    platform = Silent(runs(0), runs(1), runs(2))
    run(lambda: managed(platform, 50.0, wanted=4))
    assert platform.asked == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 47.0]


def test_after_news_it_is_asked_for_at_once_and_as_soon_again_as_at_first() -> None:
    """As when the watch tells only then of pods that were made before: the platform answers, so it is asked."""
    platform = Silent(runs(0), runs(1), runs(2))
    run(lambda: managed(platform, 10.0, wanted=4, told_at=[0.05]))
    assert platform.asked == [0.0, 0.05, 1.05, 3.05, 7.05]


def test_why_nodes_wait_is_said_once_whoever_of_them_still_does() -> None:
    def waits(index: int, message: str) -> Replica:
        return Replica(f"w-{index}", "", index, 0, 0, "pending", 0.0, pending=Unschedulable(message))

    platform = Silent(*(waits(index, "no quota") for index in range(3)))

    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        for moment, there in (
            (1.0, (runs(0), waits(1, "no quota"), waits(2, "no quota"))),
            (2.0, (runs(0), runs(1), waits(2, "no quota"))),
            (3.0, (runs(0), runs(1), waits(2, "the queue is stopped"))),
        ):
            loop.call_at(moment - 0.5, lambda there=there: setattr(platform, "there", there))
        return (await managed(platform, 4.0, wanted=3, told_at=[1.0, 2.0, 3.0]))[0]

    assert run(story) == [
        "w-2 and 2 more: there is no place for it: no quota",
        "w-2: there is no place for it: the queue is stopped",
    ]


def test_a_refusal_is_a_note_of_the_plan_until_nothing_is_refused() -> None:
    platform = Silent(runs(0), refuses="exceeded quota: few")

    async def story() -> tuple[list[str], list[Plan]]:
        loop = asyncio.get_running_loop()
        loop.call_at(3.5, lambda: setattr(platform, "refuses", ""))
        return await managed(platform, 20.0, wanted=2)

    said, plans = run(story)
    refused = "the platform refuses what the job asks for: exceeded quota: few"
    assert [line for line in said if refused in line] == [f"{refused}; trying again in 1 s"], "the pause is no news"
    noted = [[(note.replica, str(note.reason)) for note in plan.notes] for plan in plans]
    assert noted[0] == [] and [("worker-1", "the platform refuses it: exceeded quota: few")] in noted
    assert noted[-1] == []


def test_at_the_end_whoever_has_not_agreed_to_leave_is_stopped_at_once() -> None:
    async def story(leaving: tuple[str, ...] | None) -> list[tuple[str, int]]:
        platform = Silent(runs(0), runs(1), runs(2))
        await NodeManager(platform, print, asyncio.get_running_loop().time).drain(40.0, leaving)
        return platform.stopped

    assert run(lambda: story(("w-1",))) == [("w-0", 0), ("w-2", 0), ("w-1", 40)]
    assert run(lambda: story(None)) == [("w-0", 40), ("w-1", 40), ("w-2", 40)]
