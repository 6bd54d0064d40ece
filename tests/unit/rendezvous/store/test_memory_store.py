"""The in-process store on a clock of its own: leases expire when time passes, and nothing else is needed for it."""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Callable

import pytest

from elastic_run.rendezvous.base.errors import Compacted, LeaseLost
from elastic_run.rendezvous.store.contract import Put
from elastic_run.rendezvous.store.memory_store import MemoryStore


class Alarm:
    def __init__(self) -> None:
        self.off = False

    def cancel(self) -> None:
        self.off = True


class JumpingClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self._now = 100.0
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Alarm, Callable[[], object]]] = []

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object], /) -> Alarm:
        alarm = Alarm()
        heapq.heappush(self._alarms, (when, next(self._order), alarm, callback))
        return alarm

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._alarms and self._alarms[0][0] <= end:
            self._now, _, alarm, callback = heapq.heappop(self._alarms)
            if not alarm.off:
                callback()
        self._now = end


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def store(clock: JumpingClock) -> MemoryStore:
    return MemoryStore(clock=clock)


async def leased(store: MemoryStore, ttl: int) -> int:
    lease = await store.grant(ttl)
    await store.txn([], [Put("/a", b"", lease)])
    return lease


async def test_a_lease_lasts_its_time_to_live_and_no_longer(store: MemoryStore, clock: JumpingClock) -> None:
    await leased(store, 5)

    clock.advance(4.9)
    assert await store.get("/a") is not None
    clock.advance(0.2)
    assert await store.get("/a") is None


async def test_a_lease_that_is_kept_alive_never_expires(store: MemoryStore, clock: JumpingClock) -> None:
    lease = await leased(store, 5)
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(store.keep_alive(lease, 5))
        await asyncio.sleep(0)

        clock.advance(1000)

        assert await store.get("/a") is not None
        keeping.cancel()


async def test_a_lease_expires_one_time_to_live_after_its_last_keep_alive(
    store: MemoryStore, clock: JumpingClock
) -> None:
    lease = await leased(store, 5)
    keeping = asyncio.ensure_future(store.keep_alive(lease, 5))
    await asyncio.sleep(0)
    clock.advance(1000)
    keeping.cancel()
    await asyncio.wait([keeping])

    clock.advance(4.9)
    assert await store.get("/a") is not None
    clock.advance(0.2)
    assert await store.get("/a") is None


async def test_a_revoked_lease_has_no_alarm_left(store: MemoryStore, clock: JumpingClock) -> None:
    lease = await leased(store, 5)
    await store.revoke(lease)
    await store.txn([], [Put("/a", b"new")])

    clock.advance(10)

    assert await store.get("/a") is not None


async def test_an_expired_lease_cannot_be_kept_alive(store: MemoryStore, clock: JumpingClock) -> None:
    lease = await leased(store, 5)
    clock.advance(6)

    with pytest.raises(LeaseLost):
        await store.keep_alive(lease, 5)


async def test_a_lease_expires_in_one_revision_that_a_watcher_sees(store: MemoryStore, clock: JumpingClock) -> None:
    lease = await store.grant(5)
    result = await store.txn([], [Put("/b", b"", lease), Put("/a", b"", lease)])
    async with contextlib.aclosing(store.watch("/", result.revision + 1, prefix=True)) as watch:
        clock.advance(6)
        events = await anext(watch)

    assert [(event.kind, event.kv.key, event.kv.mod_revision) for event in events] == [
        ("delete", "/a", result.revision + 1),
        ("delete", "/b", result.revision + 1),
    ]


async def test_a_watch_that_lags_behind_the_kept_history_is_told(clock: JumpingClock) -> None:
    store = MemoryStore(clock=clock, history=10)
    for index in range(25):
        await store.txn([], [Put("/a", b"%d" % index)])
    newest = (await store.list("/")).revision

    with pytest.raises(Compacted) as caught:
        await anext(store.watch("/a", newest - 10))

    assert caught.value.revision == newest - 9
    assert (await anext(store.watch("/a", newest - 9)))[0].kv.value == b"15"


async def test_history_is_bounded_in_bytes(clock: JumpingClock) -> None:
    store = MemoryStore(clock=clock, history_bytes=1_000_000)
    for index in range(40):
        await store.txn([], [Put("/a", bytes([index]) * 100_000)])

    with pytest.raises(Compacted) as caught:
        await anext(store.watch("/a", 2))

    assert caught.value.revision == 33, "9 values and what belongs to them fit, of the revisions 2 to 41"
    assert (await anext(store.watch("/a", 33)))[0].kv.value[0] == 31

    store = MemoryStore(clock=clock, history_bytes=10)
    result = await store.txn([], [Put("/a", b"more than fits")])
    assert (await anext(store.watch("/a", result.revision)))[0].kv.value == b"more than fits"


async def test_a_watch_that_is_overtaken_while_it_reads_is_told(clock: JumpingClock) -> None:
    store = MemoryStore(clock=clock, history=10)
    first = (await store.txn([], [Put("/a", b"0")])).revision
    await store.txn([], [Put("/a", b"1")])
    async with contextlib.aclosing(store.watch("/a", first)) as watch:
        await anext(watch)
        for index in range(20):
            await store.txn([], [Put("/a", b"%d" % index)])

        with pytest.raises(Compacted):
            await anext(watch)
