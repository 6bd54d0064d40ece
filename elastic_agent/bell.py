"""How the agent's tasks tell each other that something has changed."""

import asyncio


class Bell:
    """Wakes every task that waits for news. `count` says how often it rang, so that no ring is missed."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Something has changed."""
        self.count += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def after(self, count: int, seconds: float | None = None) -> None:
        """Waits until it has rung more often than `count`, for at most `seconds`."""
        if self.count != count:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            self._waiting.discard(waiter)
