"""Where the parts of an agent post what has happened, and where its tasks wait for news."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..rendezvous.base.cancel import cancel
from .machine.agent_machine import AgentMachine
from .machine.node_events import NodeEvent
from .machine.node_state import NodeSettings, NodeState


class Inbox:
    """Holds what one node knows, changes it by events, and wakes every task that waits for news.

    Args:
        settings: what the node was started with.
        now: the agent's clock, seconds.

    Attributes:
        count: how often there was news, so that no task misses any.
    """

    def __init__(self, settings: NodeSettings, now: Callable[[], float]) -> None:
        self.now = now
        self.count = 0
        self._machine = AgentMachine(settings)
        self._waiting: dict[asyncio.Future[None], None] = {}  # in order, so that a run can be repeated exactly

    @property
    def state(self) -> NodeState:
        """What the node knows."""
        return self._machine.state

    def note(self, event: NodeEvent) -> NodeState:
        """What the node knows after `event`. Wakes nobody: whoever waits is woken when what is being done is done."""
        return self._machine.on(event, self.now())

    def post(self, event: NodeEvent) -> NodeState:
        """What the node knows after `event`, which is news unless the node ignores it."""
        before = self.state
        if self.note(event) is not before:
            self.wake()
        return self.state

    def wake(self) -> None:
        """There is news of something that is looked at, and not told by an event."""
        self.count += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def news(self, count: int, seconds: float | None = None) -> None:
        """Waits until there has been news more often than `count` times, for at most `seconds`."""
        if self.count == count:
            await self._wait(seconds)

    async def unless(self, work: Coroutine[Any, Any, None], stop: Callable[[], bool]) -> bool:
        """Does `work`, and cancels it as soon as there is news by which `stop` is true; whether it was done."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                if stop():
                    await cancel(task)
                    return False
                await self._wait(None, task)
            task.result()
            return True
        finally:
            task.cancel()

    async def _wait(self, seconds: float | None, *or_done: asyncio.Future[None]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await asyncio.wait([waiter, *or_done], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[waiter]
