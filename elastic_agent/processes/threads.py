"""Threads for work that may block for good: a mount that is dead, memory that cannot be read, a program on either."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """At most `most` at a time. A thread that is blocked keeps its place, and never keeps the process from its end."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """What `work` returns, on a thread of its own.

        Raises:
            TimeoutError: it has not ended within `seconds`, or those before it have not.
            OSError: no thread can be started.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                tell, outcome = ended.set_result, work()
            except BaseException as error:  # noqa: BLE001  it is raised where the work is awaited
                tell, outcome = ended.set_exception, error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it
                loop.call_soon_threadsafe(end, tell, outcome)

        def end(tell: Callable[..., None], outcome: object) -> None:
            self._free.release()
            if not ended.done():
                tell(outcome)

        async with asyncio.timeout(seconds):
            await self._free.acquire()
            try:
                threading.Thread(target=run, name="may block", daemon=True).start()
            except RuntimeError as error:
                self._free.release()
                raise OSError(str(error)) from None
            return await ended
