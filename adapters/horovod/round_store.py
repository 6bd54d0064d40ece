"""What the workers of one round tell each other while they connect, and when they may begin to: when all are there.

Horovod's workers put their addresses into a store, and ask it for those of the others; whoever has to ask for longer
than its time-out fails. So nobody is let in before everybody has come. This holds nothing else, and opens nothing.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

GET_SECONDS = 1.0
"""So long a value that is not there yet is waited for, before its reader is told so and asks again."""

T = TypeVar("T")


class RoundStore:
    """The store of one round."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._arrived: set[int] = set()
        self._values: dict[str, bytes] = {}
        self._changed = asyncio.Event()

    @property
    def missing(self) -> list[int]:
        """The ranks that have not come yet."""
        return sorted(set(range(self._world_size)) - self._arrived)

    @property
    def awaited(self) -> bool:
        """Some have come, and wait for the others."""
        return 0 < len(self._arrived) < self._world_size

    async def arrive(self, rank: int, seconds: float) -> bool:
        """This rank has come. Waits for all others; False where they have not come in time."""
        self._arrived.add(rank)
        self._tell()
        return await self._until(lambda: True if not self.missing else None, seconds) or False

    async def get(self, key: str, seconds: float = GET_SECONDS) -> bytes | None:
        """The value; None where there is none in time."""
        return await self._until(lambda: self._values.get(key), seconds)

    async def carry_out(self, method: str, key: str, value: bytes) -> bytes | None:
        """What a worker asks of one key: the body of the answer, None where there is none."""
        match method:
            case "GET":
                return await self.get(key)
            case "PUT":
                self._values[key] = value
                self._tell()
            case "DELETE":
                self._values.pop(key, None)
            case _:
                return None
        return b""

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, look: Callable[[], T | None], seconds: float) -> T | None:
        try:
            async with asyncio.timeout(seconds):
                while (found := look()) is None:
                    await self._changed.wait()
                return found
        except TimeoutError:
            return None
