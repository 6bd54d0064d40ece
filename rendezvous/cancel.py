"""The end of tasks that nobody needs any more."""

import asyncio
from typing import Any


async def cancel(*tasks: asyncio.Task[Any]) -> None:  # Any: nobody looks at what they return
    """Cancels all of them at once, and waits for their ends; how they end is of no interest."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
