"""A store inside this process: for a single node, for tests and for the simulator. No server, no start-up cost.

It keeps etcd's semantics, as `contract.py` tells them: one revision per writing transaction, leases that take their
keys with them in one revision, watches that read a history. It never waits for a network: nothing is unreachable.
"""

import asyncio
import itertools
import math
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import Compacted, LeaseLost, StoreUnavailable
from .contract import Compare, Delete, Event, Health, KeyValue, Listing, Operation, Put, TxnResult
from .limits import check_key, check_txn, covers
from .revision_times import RevisionTimes

DEFAULT_HISTORY = 10_000
"""Revisions kept for watches; a watch that lags behind by more gets Compacted."""

HISTORY_BYTES = 8 * 1024 * 1024
"""Of keys and values in these revisions, at most, unless the newest alone has more."""

_EVENT_BYTES = 256
"""For what Python keeps for one event, about."""


@dataclass(slots=True, eq=False)
class _Lease:
    ttl: int
    timer: asyncio.TimerHandle | None = None
    holders: int = 0
    keys: set[str] = field(default_factory=set[str])
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryStore:
    """A `Store` in this process.

    Args:
        clock: whose `time` and `call_at` leases expire by; None: the running event loop.
        history: revisions kept for watches.
        history_bytes: the most that these take.
    """

    def __init__(
        self,
        *,
        clock: asyncio.AbstractEventLoop | None = None,
        history: int = DEFAULT_HISTORY,
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        self._clock = clock
        self._history = history
        self._history_bytes = history_bytes
        self._log_bytes = 0
        self._revision = 1  # as a new etcd's
        self._times = RevisionTimes()
        self._oldest = 1
        self._log: list[tuple[Event, ...]] = []  # the events of revision `_log_start + index`
        self._log_start = 2
        self._kvs: dict[str, KeyValue] = {}
        self._keys: list[str] = []  # of `_kvs`, sorted
        self._leases: dict[int, _Lease] = {}
        self._ids = itertools.count(1)
        self._watchers: set[asyncio.Event] = set()
        self._closed = asyncio.Event()

    # Reading

    async def get(self, key: str) -> KeyValue | None:
        self._check_open()
        check_key(key)
        return self._kvs.get(key)

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        self._check_open()
        items = (self._kvs[key] for key in self._under(prefix))
        if keys_only:
            items = (replace(item, value=b"") for item in items)
        return Listing(self._revision, tuple(items))

    async def watch(
        self, key: str, from_revision: int, *, prefix: bool = False
    ) -> AsyncGenerator[tuple[Event, ...], None]:
        changed = asyncio.Event()
        self._watchers.add(changed)
        position = max(1, from_revision)
        try:
            while True:
                self._check_open()
                if position < self._oldest:
                    raise Compacted(self._oldest)
                changed.clear()
                while position <= self._revision:
                    # The history may be cut while the reader holds what was yielded.
                    if position < self._oldest:
                        raise Compacted(self._oldest)
                    events = tuple(event for event in self._events(position) if covers(key, prefix, event.kv.key))
                    position += 1
                    if events:
                        yield events
                        self._check_open()
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    # Writing

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        """See `Store.txn`; never raises MaybeApplied."""
        self._check_open()
        check_txn(compares, operations)
        if not all(self._holds(compare) for compare in compares):
            current = tuple(self._kvs.get(compare.key) for compare in compares)
            return TxnResult(False, self._revision, current)
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._leases:
                raise LeaseLost(_gone(operation.lease))
        self._apply(operations)
        return TxnResult(True, self._revision)

    def compact(self, revision: int) -> None:
        """Forgets the history before `revision`."""
        self._oldest = max(self._oldest, min(revision, self._revision))
        cut = self._oldest - self._log_start
        if cut > 0:
            self._log_bytes -= sum(map(_size, self._log[:cut]))
            del self._log[:cut]
            self._log_start = self._oldest

    # Leases

    async def grant(self, ttl: int) -> int:
        self._check_open()
        lease = next(self._ids)
        self._leases[lease] = _Lease(ttl)
        self._start_timer(lease)
        return lease

    async def keep_alive(self, lease: int, ttl: int) -> None:
        """See `Store.keep_alive`. A lease that is kept alive has no timer at all."""
        self._check_open()
        held = self._leases.get(lease)
        if held is None:
            raise LeaseLost(_gone(lease))
        held.holders += 1
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
        try:
            await held.gone.wait()
        finally:
            held.holders -= 1
            if held.holders == 0 and lease in self._leases:
                self._start_timer(lease)
        self._check_open()
        raise LeaseLost(_gone(lease))

    async def revoke(self, lease: int) -> None:
        self._check_open()
        self._end_lease(lease)

    # Health and end

    @property
    def health(self) -> Health:
        """Memory always answers, until it is closed."""
        return Health(not self._closed.is_set(), 0.0, "in this process")

    @property
    def away_until(self) -> float:
        """Memory is never away."""
        return -math.inf

    def reached(self, revision: int) -> float:
        return self._times.reached(revision, self._time().time())

    async def health_changed(self) -> Health:
        """Waits for `close`: nothing else changes it."""
        await self._closed.wait()
        return self.health

    async def close(self) -> None:
        self._closed.set()
        for held in self._leases.values():
            if held.timer is not None:
                held.timer.cancel()
            held.gone.set()
        self._leases.clear()
        self._wake()

    # Inside

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StoreUnavailable("the store was closed")

    def _time(self) -> asyncio.AbstractEventLoop:
        return self._clock if self._clock is not None else asyncio.get_running_loop()

    def _under(self, prefix: str) -> Sequence[str]:
        first = bisect_left(self._keys, prefix)
        return tuple(itertools.takewhile(lambda key: key.startswith(prefix), self._keys[first:]))

    def _events(self, revision: int) -> tuple[Event, ...]:
        index = revision - self._log_start
        return self._log[index] if index >= 0 else ()

    def _holds(self, compare: Compare) -> bool:
        kv = self._kvs.get(compare.key)
        if kv is None:
            return compare.revision == 0
        return compare.revision == (kv.create_revision if compare.field == "create" else kv.mod_revision)

    def _apply(self, operations: Sequence[Operation]) -> None:
        revision = self._revision + 1
        events: list[Event] = []
        for operation in operations:
            if isinstance(operation, Put):
                events.append(self._put(operation, revision))
            else:
                events.extend(self._delete(operation, revision))
        if events:
            self._revision = revision
            self._times.saw(revision, self._time().time())
            self._log.append(tuple(events))
            self._log_bytes += _size(events)
            excess = max(0, len(self._log) - self._history)
            left = self._log_bytes - sum(map(_size, self._log[:excess]))
            while left > self._history_bytes and excess < len(self._log) - 1:
                left -= _size(self._log[excess])
                excess += 1
            if excess:
                self.compact(self._log_start + excess)
            self._wake()

    def _put(self, put: Put, revision: int) -> Event:
        old = self._kvs.get(put.key)
        if old is None:
            insort(self._keys, put.key)
        self._detach(old)
        if put.lease:
            self._leases[put.lease].keys.add(put.key)
        created = revision if old is None else old.create_revision
        kv = KeyValue(put.key, put.value, created, revision, put.lease)
        self._kvs[put.key] = kv
        return Event("put", kv)

    def _delete(self, delete: Delete, revision: int) -> Sequence[Event]:
        keys = self._under(delete.key) if delete.prefix else (delete.key,)
        events: list[Event] = []
        for key in keys:
            old = self._kvs.pop(key, None)
            if old is not None:
                del self._keys[bisect_left(self._keys, key)]
                self._detach(old)
                events.append(Event("delete", KeyValue(key, b"", 0, revision)))
        return events

    def _detach(self, kv: KeyValue | None) -> None:
        if kv is not None and kv.lease:
            self._leases[kv.lease].keys.discard(kv.key)

    def _start_timer(self, lease: int) -> None:
        held = self._leases[lease]
        clock = self._time()
        held.timer = clock.call_at(clock.time() + held.ttl, lambda: self._end_lease(lease))

    def _end_lease(self, lease: int) -> None:
        held = self._leases.get(lease)
        if held is None:
            return
        if held.timer is not None:
            held.timer.cancel()
        self._apply([Delete(key) for key in sorted(held.keys)])
        del self._leases[lease]
        held.gone.set()

    def _wake(self) -> None:
        for changed in self._watchers:
            changed.set()


def _size(events: Sequence[Event]) -> int:
    return sum(_EVENT_BYTES + len(event.kv.key) + len(event.kv.value) for event in events)


def _gone(lease: int) -> str:
    return f"lease {lease:x} has expired or was revoked, and its keys are deleted: register again"
