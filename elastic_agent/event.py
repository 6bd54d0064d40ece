"""How the agent's tasks tell each other that something has changed."""

import asyncio


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
