"""What `Store` promises, sentence by sentence, of both stores; and of etcd as it is simulated."""

import asyncio
import contextlib
import contextvars
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from elastic_run.rendezvous.base.errors import Compacted, LeaseLost, StoreRefused, StoreUnavailable
from elastic_run.rendezvous.identity.sealing import SecretSeal
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.store.contract import (
    MAX_OPERATIONS,
    MAX_VALUE_BYTES,
    Compare,
    Delete,
    Event,
    KeyValue,
    Put,
    Store,
)
from elastic_run.rendezvous.store.etcd import session
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.store.etcd.grpc_import import aio
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.seal import SEALED

from ..simulation import etcd
from ..simulation.network import Network

if TYPE_CHECKING:
    from conftest import Cluster

SOON = 20.0
"""Seconds after which a wait in a test has failed."""

SEAL = SecretSeal(new_secret())

GONE = 0x7123456789ABCDE
"""A lease that nobody was granted."""


class RealTime:
    """The ordinary loop, as a simulated etcd needs it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.world = contextvars.Context()
        self.call_later = self._loop.call_later

    @property
    def now(self) -> float:
        return self._loop.time()


@pytest.fixture
async def simulated() -> etcd.Cluster:
    """Three members, without any process or wire."""
    return etcd.Cluster(["m1", "m2", "m3"], Network(random.Random(1)), RealTime(), random.Random(2))


@pytest.fixture(params=["memory", "etcd", "sealed etcd", "simulated etcd"])
async def store(
    request: pytest.FixtureRequest, simulated: etcd.Cluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    if request.param == "memory":
        made: Store = MemoryStore()
    elif request.param == "simulated etcd":
        made = EtcdStore(etcd.Client(simulated, simulated.network, "here"), now=asyncio.get_running_loop().time)
    else:
        cluster: Cluster = request.getfixturevalue("shared_etcd")
        for name in ("SHORTEST_ATTEMPT", "LONGEST_ATTEMPT"):  # a write without a condition is not tried twice
            monkeypatch.setattr(session, name, 30.0)
        made = EtcdStore(cluster.endpoints, deadline=60.0, seal=SEAL if request.param == "sealed etcd" else None)
    yield made
    await made.close()


@pytest.fixture
def compact(store: Store, request: pytest.FixtureRequest, simulated: etcd.Cluster) -> Callable[[int], Awaitable[None]]:
    async def forget(revision: int) -> None:
        if isinstance(store, MemoryStore):
            store.compact(revision)
            return
        if request.node.callspec.params["store"] == "simulated etcd":
            simulated.compact(revision)
            return
        async with aio.insecure_channel(request.getfixturevalue("shared_etcd").endpoint) as channel:
            call = channel.unary_unary(
                "/etcdserverpb.KV/Compact",
                request_serializer=pb.CompactionRequest.SerializeToString,
                response_deserializer=pb.CompactionResponse.FromString,
            )
            await call(pb.CompactionRequest(revision=revision, physical=True), timeout=SOON)

    return forget


async def put(store: Store, key: str, value: bytes = b"", lease: int = 0) -> int:
    result = await store.txn([], [Put(key, value, lease)])
    assert result.succeeded
    return result.revision


async def take(store: Store, count: int, key: str, start: int, *, prefix: bool = True) -> list[tuple[Event, ...]]:
    """The first `count` revisions of a watch."""
    seen: list[tuple[Event, ...]] = []
    async with asyncio.timeout(SOON), contextlib.aclosing(store.watch(key, start, prefix=prefix)) as watch:
        async for events in watch:
            seen.append(events)
            if len(seen) == count:
                break
    return seen


# Reading


async def test_a_key_that_does_not_exist_reads_as_none(store: Store, prefix: str) -> None:
    assert await store.get(prefix + "no") is None


async def test_a_key_remembers_the_revisions_that_created_and_last_changed_it(store: Store, prefix: str) -> None:
    created = await put(store, prefix + "a", b"1")
    changed = await put(store, prefix + "a", b"2")

    assert changed == created + 1
    assert await store.get(prefix + "a") == KeyValue(prefix + "a", b"2", created, changed)


async def test_a_key_made_anew_has_a_new_create_revision(store: Store, prefix: str) -> None:
    await put(store, prefix + "a")
    await store.txn([], [Delete(prefix + "a")])
    again = await put(store, prefix + "a")

    kv = await store.get(prefix + "a")
    assert kv is not None
    assert (kv.create_revision, kv.mod_revision) == (again, again)


async def test_a_listing_holds_the_keys_under_a_prefix_sorted_by_key(store: Store, prefix: str) -> None:
    for key in ("b", "a/é", "a/z", "a", "ab"):
        await put(store, prefix + key, key.encode())

    listing = await store.list(prefix + "a")

    assert [kv.key for kv in listing.items] == [prefix + key for key in ("a", "a/z", "a/é", "ab")]
    assert [kv.value.decode() for kv in listing.items] == ["a", "a/z", "a/é", "ab"]


async def test_a_listing_tells_the_revision_that_a_watch_goes_on_from(store: Store, prefix: str) -> None:
    await put(store, prefix + "a")
    listing = await store.list(prefix)
    later = await put(store, prefix + "b")

    ((event,),) = await take(store, 1, prefix, listing.revision + 1)

    assert listing.revision == later - 1
    assert event.kv.key == prefix + "b"


async def test_a_listing_of_keys_only_leaves_out_the_values(store: Store, prefix: str) -> None:
    revision = await put(store, prefix + "a", b"value")

    listing = await store.list(prefix, keys_only=True)

    assert listing.items == (KeyValue(prefix + "a", b"", revision, revision),)


async def test_a_value_that_somebody_without_the_secret_has_made_empty_is_not_taken_for_one(
    shared_etcd: "Cluster", prefix: str
) -> None:
    plain, sealed = EtcdStore(shared_etcd.endpoints), EtcdStore(shared_etcd.endpoints, seal=SEAL)
    async with contextlib.AsyncExitStack() as stack:
        for each in (plain, sealed):
            stack.push_async_callback(each.close)
        revision = await put(plain, prefix + "a", b"")
        forged = KeyValue(prefix + "a", SEALED, revision, revision)
        assert await sealed.get(prefix + "a") == forged
        assert (await sealed.list(prefix)).items == (forged,)
        assert (await sealed.list(prefix, keys_only=True)).items == (KeyValue(prefix + "a", b"", revision, revision),)
        assert (await sealed.txn([Compare(prefix + "a", 0)], [])).current == (forged,)
        end = (await sealed.txn([], [Delete(prefix + "a")])).revision
        changes = sealed.watch(prefix, revision, prefix=True)
        assert await anext(changes) == (Event("put", forged),)
        assert await anext(changes) == (Event("delete", KeyValue(prefix + "a", b"", 0, end)),)
        await changes.aclose()


async def test_a_listing_longer_than_one_answer_is_whole(store: Store, prefix: str) -> None:
    keys = [f"{prefix}{index:05}" for index in range(1300)]
    for first in range(0, len(keys), 100):
        await store.txn([], [Put(key, b"x") for key in keys[first : first + 100]])

    assert [kv.key for kv in (await store.list(prefix)).items] == keys


async def test_an_empty_listing_is_no_error(store: Store, prefix: str) -> None:
    listing = await store.list(prefix)

    assert listing.items == ()
    assert listing.revision >= 1


# Transactions


async def test_a_transaction_without_compares_is_applied(store: Store, prefix: str) -> None:
    result = await store.txn([], [Put(prefix + "a", b"1"), Put(prefix + "b", b"2")])

    assert result.succeeded
    assert result.current == ()
    assert {kv.mod_revision for kv in (await store.list(prefix)).items} == {result.revision}


async def test_a_key_that_does_not_exist_compares_equal_to_revision_0(store: Store, prefix: str) -> None:
    for which in ("create", "mod"):
        result = await store.txn([Compare(prefix + "a", 0, which)], [])
        assert result.succeeded


async def test_a_key_that_exists_does_not_compare_equal_to_revision_0(store: Store, prefix: str) -> None:
    await put(store, prefix + "a")

    for which in ("create", "mod"):
        result = await store.txn([Compare(prefix + "a", 0, which)], [])
        assert not result.succeeded


async def test_compares_tell_the_create_from_the_mod_revision(store: Store, prefix: str) -> None:
    created = await put(store, prefix + "a")
    changed = await put(store, prefix + "a")

    async def holds(revision: int, which: str) -> bool:
        return (await store.txn([Compare(prefix + "a", revision, which)], [])).succeeded

    assert await holds(created, "create")
    assert not await holds(changed, "create")
    assert await holds(changed, "mod")
    assert not await holds(created, "mod")


async def test_where_one_compare_fails_nothing_is_applied_and_the_compared_keys_are_told(
    store: Store, prefix: str
) -> None:
    revision = await put(store, prefix + "b", b"there")

    result = await store.txn(
        [Compare(prefix + "a", 0), Compare(prefix + "b", 0), Compare(prefix + "b", revision)],
        [Put(prefix + "c", b""), Delete(prefix + "b")],
    )

    there = KeyValue(prefix + "b", b"there", revision, revision)
    assert not result.succeeded
    assert result.current == (None, there, there)
    assert result.revision == revision
    assert (await store.list(prefix)).items == (there,)


async def test_a_fenced_read_without_operations_makes_no_revision(store: Store, prefix: str) -> None:
    revision = await put(store, prefix + "a")

    result = await store.txn([Compare(prefix + "a", revision)], [])

    assert result.succeeded
    assert result.revision == revision


async def test_removing_nothing_is_no_error_and_makes_no_revision(store: Store, prefix: str) -> None:
    revision = await put(store, prefix + "a")

    result = await store.txn([], [Delete(prefix + "b"), Delete(prefix + "x", prefix=True)])

    assert result.succeeded
    assert result.revision == revision


async def test_a_prefix_is_removed_in_one_revision(store: Store, prefix: str) -> None:
    for key in ("a/1", "a/2", "a0", "b"):
        await put(store, prefix + key)

    await store.txn([], [Delete(prefix + "a/", prefix=True)])

    assert [kv.key for kv in (await store.list(prefix)).items] == [prefix + "a0", prefix + "b"]


async def test_of_two_who_compare_the_same_one_wins(store: Store, prefix: str) -> None:
    key = prefix + "leader"
    results = await asyncio.gather(*(store.txn([Compare(key, 0)], [Put(key, b"%d" % who)]) for who in range(8)))

    (winner,) = [who for who, result in enumerate(results) if result.succeeded]
    kv = await store.get(key)
    assert kv is not None
    assert kv.value == b"%d" % winner
    assert all(result.current == (kv,) for who, result in enumerate(results) if who != winner)


async def test_128_operations_fit_into_one_transaction(store: Store, prefix: str) -> None:
    result = await store.txn([], [Put(f"{prefix}{index}", b"") for index in range(MAX_OPERATIONS)])

    assert result.succeeded
    assert len((await store.list(prefix)).items) == MAX_OPERATIONS


async def test_compares_count_as_operations(store: Store, prefix: str) -> None:
    compares = [Compare(prefix + "a", 0), Compare(prefix + "b", 0)]
    puts = [Put(f"{prefix}{index}", b"") for index in range(MAX_OPERATIONS - 2)]

    assert (await store.txn(compares, puts)).succeeded
    with pytest.raises(StoreRefused, match="129, and 128 fit"):
        await store.txn(compares, [*puts, Put(prefix + "more", b"")])


async def test_129_operations_are_refused_and_nothing_is_applied(store: Store, prefix: str) -> None:
    with pytest.raises(StoreRefused, match="too many operations"):
        await store.txn([], [Put(f"{prefix}{index}", b"") for index in range(MAX_OPERATIONS + 1)])

    assert (await store.list(prefix)).items == ()


async def test_a_value_of_the_largest_size_fits(store: Store, prefix: str) -> None:
    await put(store, prefix + "a", b"x" * MAX_VALUE_BYTES)

    kv = await store.get(prefix + "a")
    assert kv is not None
    assert len(kv.value) == MAX_VALUE_BYTES


async def test_a_larger_value_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(StoreRefused, match="too large"):
        await put(store, prefix + "a", b"x" * (MAX_VALUE_BYTES + 1))


async def test_a_transaction_just_below_the_limit_fits_and_one_above_is_refused(store: Store, prefix: str) -> None:
    def transaction(total: int) -> list[Put]:
        return [Put(f"{prefix}{index}", b"x" * (total // 100)) for index in range(100)]

    assert (await store.txn([], transaction(1_390_000))).succeeded
    with pytest.raises(StoreRefused, match="too large"):
        await store.txn([], transaction(1_400_000))


async def test_a_transaction_that_contradicts_itself_is_refused(store: Store, prefix: str) -> None:
    for contradiction in (
        [Put(prefix + "a", b"1"), Put(prefix + "a", b"2")],
        [Put(prefix + "a", b"1"), Delete(prefix + "a")],
        [Delete(prefix, prefix=True), Put(prefix + "a", b"1")],
    ):
        with pytest.raises(StoreRefused, match="one transaction writes"):
            await store.txn([], contradiction)


async def test_an_empty_key_is_refused(store: Store) -> None:
    with pytest.raises(StoreRefused, match="empty key"):
        await put(store, "")
    with pytest.raises(StoreRefused, match="empty key"):
        await store.get("")


# Watches


async def test_a_watch_tells_the_past_from_its_revision_on_and_then_what_happens(store: Store, prefix: str) -> None:
    await put(store, prefix + "a", b"before")
    first = await put(store, prefix + "a", b"1")
    second = await put(store, prefix + "b", b"2")

    async with asyncio.timeout(SOON), contextlib.aclosing(store.watch(prefix, first, prefix=True)) as watch:
        assert [event.kv.mod_revision for event in await anext(watch)] == [first]
        assert [event.kv.mod_revision for event in await anext(watch)] == [second]
        waiting = asyncio.ensure_future(anext(watch))
        third = await put(store, prefix + "c", b"3")
        (event,) = await waiting

    assert event == Event("put", KeyValue(prefix + "c", b"3", third, third))


async def test_a_watch_of_one_key_tells_of_no_other(store: Store, prefix: str) -> None:
    first = await put(store, prefix + "a", b"1")
    await put(store, prefix + "ab", b"2")
    await put(store, prefix + "a", b"3")

    seen = await take(store, 2, prefix + "a", first, prefix=False)

    assert [event.kv.value for (event,) in seen] == [b"1", b"3"]


async def test_the_events_of_one_revision_arrive_together_and_those_of_two_apart(store: Store, prefix: str) -> None:
    first = (await store.txn([], [Put(f"{prefix}{index:03}", b"x" * 10_000) for index in range(120)])).revision
    second = (await store.txn([], [Delete(prefix, prefix=True)])).revision

    puts, deletes = await take(store, 2, prefix, first)

    assert [event.kv.key for event in puts] == [f"{prefix}{index:03}" for index in range(120)]
    assert {event.kv.mod_revision for event in puts} == {first}
    assert [event.kv.key for event in deletes] == [f"{prefix}{index:03}" for index in range(120)]
    assert {event.kv.mod_revision for event in deletes} == {second}


async def test_a_revision_arrives_whole_where_messages_are_cut_in_the_middle_of_it(store: Store, prefix: str) -> None:
    batch = [Put(f"{prefix}{index:03}", b"x" * 10_000) for index in range(120)]
    revisions = [(await store.txn([], batch)).revision for _ in range(5)]

    seen = await take(store, 5, prefix, revisions[0])

    assert [[event.kv.mod_revision for event in events] for events in seen] == [
        [revision] * len(batch) for revision in revisions
    ]


async def test_a_watch_tells_more_than_one_message_can_hold(store: Store, prefix: str) -> None:
    revisions = [await put(store, prefix + "a", bytes(900_000)) for _ in range(6)]

    seen = await take(store, 6, prefix, revisions[0])

    assert [event.kv.mod_revision for (event,) in seen] == revisions
    assert all(len(event.kv.value) == 900_000 for (event,) in seen)


async def test_a_deletion_is_an_event_without_a_value(store: Store, prefix: str) -> None:
    await put(store, prefix + "a", b"value")
    revision = (await store.txn([], [Delete(prefix + "a")])).revision

    assert await take(store, 1, prefix, revision) == [(Event("delete", KeyValue(prefix + "a", b"", 0, revision)),)]


async def test_a_watch_from_the_future_begins_there(store: Store, prefix: str) -> None:
    revision = await put(store, prefix + "a", b"1")
    waiting = asyncio.ensure_future(take(store, 1, prefix, revision + 2))
    await put(store, prefix + "a", b"2")
    await put(store, prefix + "a", b"3")

    (((event,),)) = await waiting

    assert event.kv.value == b"3"


async def test_two_watches_see_the_same(store: Store, prefix: str) -> None:
    revision = await put(store, prefix + "a")
    watches = [asyncio.ensure_future(take(store, 20, prefix, revision)) for _ in range(2)]
    for index in range(20):
        await put(store, prefix + "a", b"%d" % index)

    one, other = await asyncio.gather(*watches)

    assert one == other


async def test_a_watch_of_history_that_is_gone_says_from_where_it_is_there(
    store: Store, prefix: str, compact: Callable[[int], Awaitable[None]]
) -> None:
    first = await put(store, prefix + "a", b"1")
    second = await put(store, prefix + "a", b"2")
    third = await put(store, prefix + "a", b"3")
    await compact(second)

    with pytest.raises(Compacted, match="list the keys again") as caught:
        await take(store, 1, prefix, first)

    assert caught.value.revision == second
    assert [event.kv.mod_revision for (event,) in await take(store, 2, prefix, second)] == [second, third]


async def test_a_cancelled_watch_ends_and_leaves_the_store_usable(store: Store, prefix: str) -> None:
    watching = asyncio.ensure_future(take(store, 1, prefix, 1 + (await store.list(prefix)).revision))
    await put(store, "/elsewhere" + prefix, b"")
    watching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await watching
    assert await put(store, prefix + "a")


# Leases


async def test_a_key_goes_when_its_lease_is_revoked(store: Store, prefix: str) -> None:
    lease = await store.grant(60)
    await put(store, prefix + "a", b"1", lease)
    await put(store, prefix + "b", b"2", lease)
    last = await put(store, prefix + "stays", b"3")

    await store.revoke(lease)

    (events,) = await take(store, 1, prefix, last + 1)
    assert [(event.kind, event.kv.key, event.kv.lease) for event in events] == [
        ("delete", prefix + "a", 0),
        ("delete", prefix + "b", 0),
    ]
    assert [kv.key for kv in (await store.list(prefix)).items] == [prefix + "stays"]


async def test_a_key_tells_its_lease(store: Store, prefix: str) -> None:
    lease = await store.grant(60)
    await put(store, prefix + "a", b"", lease)

    kv = await store.get(prefix + "a")

    assert lease > 0
    assert kv is not None
    assert kv.lease == lease


async def test_leases_have_ids_of_their_own(store: Store) -> None:
    assert await store.grant(60) != await store.grant(60)


async def test_a_lease_that_nobody_keeps_alive_expires_and_a_watcher_sees_it(store: Store, prefix: str) -> None:
    lease = await store.grant(1)
    revision = await put(store, prefix + "a", b"", lease)

    ((event,),) = await take(store, 1, prefix, revision + 1)

    assert (event.kind, event.kv.key) == ("delete", prefix + "a")
    with pytest.raises(LeaseLost):
        await put(store, prefix + "a", b"", lease)


async def test_a_lease_that_is_kept_alive_outlives_one_that_is_not(store: Store, prefix: str) -> None:
    kept, other = await store.grant(1), await store.grant(2)
    keeping = asyncio.ensure_future(store.keep_alive(kept, 1))
    await put(store, prefix + "kept", b"", kept)
    revision = await put(store, prefix + "other", b"", other)

    ((event,),) = await take(store, 1, prefix, revision + 1)

    assert event.kv.key == prefix + "other"
    assert not keeping.done()
    keeping.cancel()
    ((event,),) = await take(store, 1, prefix, event.kv.mod_revision + 1)
    assert event.kv.key == prefix + "kept"


async def test_whoever_keeps_a_lease_alive_is_told_when_it_is_gone(store: Store) -> None:
    lease = await store.grant(1)
    keeping = asyncio.ensure_future(store.keep_alive(lease, 1))
    await store.revoke(lease)

    with pytest.raises(LeaseLost, match="register again"):
        await asyncio.wait_for(keeping, SOON)


async def test_a_lease_that_was_never_granted_cannot_be_kept_alive(store: Store) -> None:
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(store.keep_alive(GONE, 1), SOON)


async def test_a_put_under_a_lease_that_is_gone_changes_nothing(store: Store, prefix: str) -> None:
    with pytest.raises(LeaseLost):
        await store.txn([], [Put(prefix + "a", b""), Put(prefix + "b", b"", GONE)])

    assert (await store.list(prefix)).items == ()


async def test_where_a_compare_fails_a_lease_that_is_gone_does_not_matter(store: Store, prefix: str) -> None:
    result = await store.txn([Compare(prefix + "a", 5)], [Put(prefix + "b", b"", GONE)])

    assert not result.succeeded


async def test_revoking_a_lease_that_is_gone_is_no_error(store: Store) -> None:
    lease = await store.grant(60)

    await store.revoke(lease)
    await store.revoke(lease)
    await store.revoke(GONE)


async def test_a_put_without_the_lease_frees_the_key_from_it(store: Store, prefix: str) -> None:
    lease = await store.grant(60)
    await put(store, prefix + "a", b"", lease)
    await put(store, prefix + "a", b"free")
    await store.revoke(lease)

    kv = await store.get(prefix + "a")
    assert kv is not None
    assert kv.lease == 0


async def test_a_put_under_another_lease_moves_the_key_to_it(store: Store, prefix: str) -> None:
    old, new = await store.grant(60), await store.grant(60)
    await put(store, prefix + "a", b"", old)
    await put(store, prefix + "a", b"", new)

    await store.revoke(old)
    assert await store.get(prefix + "a") is not None
    await store.revoke(new)
    assert await store.get(prefix + "a") is None


# Health and end


async def test_a_store_that_answers_is_reachable(store: Store, prefix: str) -> None:
    await store.get(prefix + "a")

    assert store.health.reachable


async def test_closing_tells_those_who_wait_for_a_change_of_health(store: Store, prefix: str) -> None:
    await store.get(prefix + "a")
    waiting = asyncio.ensure_future(store.health_changed())
    await store.get(prefix + "a")

    await store.close()

    health = await asyncio.wait_for(waiting, SOON)
    assert not health.reachable
    assert health == store.health


async def test_a_closed_store_is_unavailable(store: Store, prefix: str) -> None:
    await store.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get(prefix + "a")
    with pytest.raises(StoreUnavailable, match="closed"):
        await take(store, 1, prefix, 1)


async def test_closing_ends_watches_and_keep_alives_with_unavailable(store: Store, prefix: str) -> None:
    lease = await store.grant(60)
    revision = await put(store, prefix + "a")
    keeping = asyncio.ensure_future(store.keep_alive(lease, 60))
    async with asyncio.timeout(SOON), contextlib.aclosing(store.watch(prefix, revision, prefix=True)) as watch:
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await put(store, "/elsewhere" + prefix)

        await store.close()

        with pytest.raises(StoreUnavailable, match="closed"):
            await waiting
        with pytest.raises(StoreUnavailable, match="closed"):
            await keeping


async def test_closing_twice_is_no_error(store: Store) -> None:
    await store.close()
    await store.close()
