"""Threads for work that may block for good: a mount that is dead, memory that cannot be read, a program on either."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begin(work: Callable[[], T]) -> Future[T]:
    """What `work` returns, on a thread of its own. Raises OSError where no thread can be started."""
    outcome = Future[T]()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  it is raised where the work is awaited
            outcome.set_exception(error)

    try:
        threading.Thread(target=run, name="may block", daemon=True).start()
    except RuntimeError as error:
        raise OSError(str(error)) from None
    return outcome


def call_from_thread(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *given: object) -> None:
    """Has the loop call it soon, from any thread; where the loop has been closed, nobody is left to hear it."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *given)


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
        async with asyncio.timeout(seconds):
            await self._free.acquire()
            try:
                outcome = begin(work)
            except OSError:
                self._free.release()
                raise
            outcome.add_done_callback(lambda _: call_from_thread(loop, self._free.release))
            return await asyncio.wrap_future(outcome)
