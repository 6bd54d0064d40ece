"""Tasks with one owner: begun by name, kept until they end, and ended together."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .cancel import cancel


class Tasks:
    """Holds tasks, in the order of their beginning.

    Args:
        ended: is called when one of them has ended, and `check` then says how. None: the owner does not ask, and
            asyncio reports an error that a task ends by.
    """

    def __init__(self, ended: Callable[[], None] | None = None) -> None:
        self._ended = ended
        self._tasks: dict[asyncio.Task[Any], None] = {}  # Any: nobody looks at what they return
        self._failed: list[asyncio.Task[Any]] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, object], name: str) -> "asyncio.Task[Any]":
        """Begins a task, and returns it: it runs until it ends by itself, `end` ends it, or `close` ends all."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        held = task in self._tasks
        self._tasks.pop(task, None)
        if self._ended is not None:
            if held and not task.cancelled() and task.exception() is not None:
                self._failed.append(task)
            self._ended()

    def end(self, *tasks: "asyncio.Task[Any] | None") -> None:
        """Ends those of these tasks that there are; how they end is of no interest."""
        for task in filter(None, tasks):
            task.cancel()
            self._tasks.pop(task, None)

    def check(self) -> None:
        """Raises the error by which a task has ended."""
        for task in self._failed:
            task.result()

    async def close(self) -> None:
        await cancel(*self._tasks)
