"""The end of tasks that nobody needs any more."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any


async def cancel(*tasks: asyncio.Task[Any]) -> None:  # Any: nobody looks at what they return
    """Cancels all of them at once, and waits for their ends; how they end is of no interest."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, object], name: str) -> AsyncGenerator[None]:
    """A task that runs while the context lasts, or until it ends by itself."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        await cancel(task)
