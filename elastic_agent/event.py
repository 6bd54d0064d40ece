"""How the agent's tasks tell each other that something has changed, or that what is being done is to be given up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..rendezvous.cancel import cancel


class CountingEvent:
    """Wakes every task that waits for news. `count` says how often it was set, so that no change is missed."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: dict[asyncio.Future[None], None] = {}  # in order, so that a run can be repeated exactly

    def set(self) -> None:
        """Something has changed."""
        self.count += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def after(self, count: int, seconds: float | None = None) -> None:
        """Waits until it has been set more often than `count`, for at most `seconds`."""
        if self.count != count:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            del self._waiting[waiter]


class Interrupt:
    """News that may make work in progress pointless."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """There is such news; whoever works looks at it."""
        self._event.set()

    async def unless(self, work: Coroutine[Any, Any, None], stop: Callable[[], bool]) -> None:
        """Runs `work`, and cancels it as soon as an interrupt finds that `stop` is true."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                noticed = asyncio.create_task(self._event.wait())
                await asyncio.wait({task, noticed}, return_when=asyncio.FIRST_COMPLETED)
                noticed.cancel()
                self._event.clear()
                if stop() and not task.done():
                    await cancel(task)
                    return
            task.result()
        finally:
            task.cancel()
