"""Tasks that visitors cause: kept until they end, and ended together."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ..cancel import cancel


class Visits:
    """Holds tasks, in the order of their beginning."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # Any: nobody looks at what they return

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Begins one."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    async def close(self) -> None:
        """Cancels all, and waits for their ends."""
        await cancel(*self._tasks)
