"""A c10d store in etcd: by it torchrun's agents tell each other their ranks, and where rank 0 of a round is.

It is for agents, a few small values in each round. The workers' own store is a TCPStore of rank 0's, as ever.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

import torch.distributed as dist

from ...rendezvous.base.errors import Compacted
from ...rendezvous.store.contract import Compare
from .etcd_connection import Connection


class EtcdC10dStore(dist.Store):  # pyright: ignore[reportPrivateImportUsage]  # it is public in torch's pages
    """Those methods of a c10d store that torchrun's agents use.

    Args:
        connection: to etcd.
        prefix: of all keys, asked at each call.
    """

    def __init__(self, connection: Connection, prefix: Callable[[], str]) -> None:
        super().__init__()
        self._connection = connection
        self._prefix = prefix

    def set(self, key: str, value: str | bytes) -> None:
        """Writes a value over what is there."""
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Writes several values."""
        for key, value in zip(keys, values, strict=True):
            data = value.encode() if isinstance(value, str) else bytes(value)
            self._connection.call(self._connection.write([], {self._key(key): data}))

    def get(self, key: str) -> bytes:
        """A value; waits until it is there. Raises DistStoreError after the store's timeout."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Several values; waits until all are there. Raises DistStoreError after the store's timeout."""
        return self._await(keys, None)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys are there. Raises DistStoreError after `timeout`."""
        self._await(keys, timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        get = self._connection.store.get
        return all(self._connection.call(get(self._key(key))) is not None for key in keys)

    def add(self, key: str, value: int) -> int:
        """Adds to a counter, which begins at 0; returns the sum."""
        return self._connection.call(self._add(self._key(key), value))

    async def _add(self, key: str, amount: int) -> int:
        receipt = f"{key}/{secrets.token_hex(8)}"  # tells whether an attempt without an answer was applied
        found = await self._connection.store.get(key)
        while True:
            total = amount + (int(found.value) if found else 0)
            value = str(total).encode()
            compares = [Compare(key, found.mod_revision if found else 0, "mod"), Compare(receipt, 0)]
            result = await self._connection.write(compares, {key: value, receipt: value})
            if result.succeeded:
                return total
            found, applied = result.current
            if applied:
                return int(applied.value)

    def _await(self, keys: Sequence[str], timeout: timedelta | None) -> list[bytes]:
        own: timedelta = cast(Any, self).timeout  # Any: torch's types lack it
        seconds = (own if timeout is None else timeout).total_seconds()
        wanted = [self._key(key) for key in keys]

        async def appear() -> list[bytes] | None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return [await self._appears(key) for key in wanted]
            return None

        found = self._connection.call(appear(), seconds)
        if found is None:
            raise dist.DistStoreError(f"waited {seconds:g} s for {', '.join(keys)} in etcd: nobody set it")
        return found

    async def _appears(self, key: str) -> bytes:
        store = self._connection.store
        while True:
            listing = await store.list(key)
            for item in listing.items:
                if item.key == key:
                    return item.value
            try:
                async with contextlib.aclosing(store.watch(key, listing.revision + 1)) as changes:
                    async for events in changes:
                        for event in events:
                            if event.kind == "put":
                                return event.kv.value
            except Compacted:
                continue

    def _key(self, key: str) -> str:
        return f"{self._prefix()}/{key}"
