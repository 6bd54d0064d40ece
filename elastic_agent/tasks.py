"""The tasks of one agent: begun by name, looked after by the loop, and ended with it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..rendezvous.cancel import cancel


class Tasks:
    """What runs beside the agent's loop.

    Args:
        ended: is called when one of them has ended.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they were begun

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begins a task that is to run until it ends by itself, is ended, or the agent is."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._ended())
        return task

    def end(self, *tasks: asyncio.Task[None] | None) -> None:
        """Ends those of these tasks that there are; how they end is of no interest."""
        for task in filter(None, tasks):
            task.cancel()
            self._tasks.pop(task, None)

    def check(self) -> None:
        """Raises the error by which a task has ended: it ends the agent."""
        for task in tuple(self._tasks):
            if task.done() and not task.cancelled():
                task.result()

    async def close(self) -> None:
        """Ends all of them, and waits for that."""
        await cancel(*self._tasks)
