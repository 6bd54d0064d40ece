"""What this node's workers have said of their clocks: told to each of the job's masters, all of it each time.

A master holds that in memory alone. So its successor is told again, within a second, also by workers that are in the
middle of a long step.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ..adapters.client.channel import Back, Call
from ..master.data.worker_clocks import LowestClock, NodeClocks, WorkerClock
from ..rendezvous.base.tasks import Tasks
from ..rendezvous.wire.values import Malformed, decode, encode
from .say_once import SayOnce

AGAIN_SECONDS = 1.0
"""Between two times that all is told."""


class ClockReports:
    """Of one node.

    Args:
        ask_master: asks whoever leads the job, as often as it takes.
        tasks: end before nobody asks any more.
        say: prints one line for a person.
    """

    def __init__(self, ask_master: Callable[[Call], Awaitable[Back]], tasks: Tasks, say: Callable[[str], None]) -> None:
        self._ask_master = ask_master
        self._tasks = tasks
        self._say = SayOnce(say)
        self._repeating: asyncio.Task[None] | None = None
        self._last: dict[int, WorkerClock] = {}  # by rank
        self._lowest = 0

    async def answer(self, call: Call) -> Back:
        """What the master says to a worker's call."""
        try:
            asked = decode(NodeClocks, call.told.encode())
        except Malformed as error:
            return Back(text=f"a clock that cannot be read: {error}")
        for each in asked.clocks:
            before = self._last.get(each.rank)
            if before is None or (before.round, before.count) < (each.round, each.count):
                self._last[each.rank] = each
        self._lowest = max(self._lowest, asked.lowest)
        if self._repeating is None:
            self._repeating = self._tasks.begin(self._repeat(), "the workers' clocks")
        return await self._tell_all(asked.wants)

    async def _tell_all(self, wants: int) -> Back:
        told = NodeClocks(tuple(self._last.values()), self._lowest, wants)
        back = await self._ask_master(Call("clocks", 0, told=encode(told).decode()))
        if not back.text:
            self._lowest = max(self._lowest, decode(LowestClock, back.told.encode()).lowest)
        return back

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            trouble = ""
            try:
                await self._tell_all(0)
            except Exception as error:  # noqa: BLE001  whatever it is: a next master waits for this word
                trouble = f"cannot tell the job's master the workers' clocks, and tries again: {error!r}"
            self._say("clocks", trouble)
