"""The store in etcd for code without an event loop, such as torchrun's agent: a loop in a thread of its own.

Every call has a deadline. Whatever the store says becomes a RendezvousConnectionError of torch's.
"""

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from torch.distributed.elastic.rendezvous import RendezvousConnectionError

from ...rendezvous.base.errors import LeaseLost, StoreError
from ...rendezvous.store.contract import Compare, Put, TxnResult
from ...rendezvous.store.etcd.etcd_store import EtcdStore

T = TypeVar("T")

MARGIN_SECONDS = 5.0
"""Beyond the deadline that the store keeps by itself: then the thread does not answer."""


class Connection:
    """A store, and a thread that it lives in until the process ends or `close` is called.

    Args:
        make: makes the store, inside of the loop.
        seconds: the deadline of the store's calls.
        ttl: seconds that what is written lives, at least half of it.
    """

    def __init__(self, make: Callable[[], EtcdStore], *, seconds: float, ttl: int) -> None:
        self._seconds = seconds
        self._ttl = ttl
        self._lease, self._lease_ends = 0, 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="etcd of elastic-run", daemon=True)
        self._thread.start()

        async def begin() -> EtcdStore:
            return make()

        try:
            self.store = self._result(begin(), seconds)
        except BaseException:
            self._stop()
            raise
        atexit.register(self.close)

    def call(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """What `work` returns. Raises RendezvousConnectionError.

        Args:
            work: calls of `store`.
            seconds: of a wait that it has by itself; None: the store's deadline.
        """
        try:
            return self._result(work, self._seconds if seconds is None else seconds + self._seconds)
        except StoreError as error:
            raise RendezvousConnectionError(f"etcd: {error}") from error
        except TimeoutError:
            raise RendezvousConnectionError(f"etcd: no answer within {self._seconds:g} s") from None

    async def write(self, compares: list[Compare], values: dict[str, bytes], ttl: int | None = None) -> TxnResult:
        """Puts `values` where every compare holds; asked again until the deadline, so it must do no harm twice.

        Args:
            ttl: seconds that they live; None: as long as all that is written.
        """
        for attempt in range(2):
            lease = await (self._current_lease() if ttl is None else self.store.grant(ttl))
            puts = [Put(key, value, lease) for key, value in values.items()]
            try:
                return await self.store.txn(compares, puts, idempotent=True)
            except LeaseLost:
                self._lease_ends = 0.0
                if attempt:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Ends the thread; may be called again."""
        atexit.unregister(self.close)
        if not self._thread.is_alive():
            return
        with contextlib.suppress(TimeoutError):  # the process ends anyway
            self._result(self._end(), MARGIN_SECONDS)
        self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(MARGIN_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        await self.store.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _current_lease(self) -> int:
        now = self._loop.time()
        if now >= self._lease_ends:
            self._lease = await self.store.grant(self._ttl)
            self._lease_ends = now + self._ttl / 2
        return self._lease

    def _result(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        if not self._thread.is_alive():
            work.close()
            raise RendezvousConnectionError("etcd: the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds + MARGIN_SECONDS)
        except TimeoutError:
            future.cancel()
            raise
