"""The master's writes, on the store in memory: what they leave there, and what they remember."""

import dataclasses
from collections.abc import AsyncIterator, Sequence

import pytest

from elastic_run.master import takeover
from elastic_run.master.machine.targets import Target, Targets
from elastic_run.master.publish import Publisher
from elastic_run.rendezvous import election
from elastic_run.rendezvous.base.errors import Deposed
from elastic_run.rendezvous.header import Eviction, Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.node_reasons import LeaseExpired
from elastic_run.rendezvous.ranks import assign
from elastic_run.rendezvous.reasons import AllJoined, KeepsItsSize
from elastic_run.rendezvous.store.contract import Compare, Delete, KeyValue, Operation, Put, TxnResult
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.time_split import Category, Split, SplitUntil
from elastic_run.rendezvous.wire.values import decode

KEYS = Keys("job")
FINGERPRINT = Fingerprint("train.py", (), "1:2", "1", "0")
MEMBER = Member("a", "life", "host", "", 1, (5001,), FINGERPRINT)
EVICTION = Eviction(LeaseExpired())


class RecordingStore(MemoryStore):
    """Remembers the last transaction's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Sequence[Operation] = ()

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        """See `Store.txn`."""
        self.last = operations
        return await super().txn(compares, operations, idempotent=idempotent)


@pytest.fixture
async def store() -> AsyncIterator[RecordingStore]:
    made = RecordingStore()
    yield made
    await made.close()


@pytest.fixture
async def publisher(store: RecordingStore) -> Publisher:
    lease = await store.grant(60)
    won = await election.campaign(store, KEYS, Leader("a", "life", ""), lease)
    assert isinstance(won, election.Leadership)
    return Publisher(store, KEYS, won, lease, 0)


def header(publisher: Publisher, number: int = 1) -> Header:
    return Header(number, "run", "open", "start", AllJoined(1), FINGERPRINT, publisher.prefix(number), 1, world_size=1)


async def opens(publisher: Publisher, number: int = 1, *, wanted: bool = True) -> bool:
    return await publisher.open(header(publisher, number), assign(number, [MEMBER]), "", lambda: wanted)


async def test_a_round_that_was_withdrawn_is_published_anew_elsewhere(publisher: Publisher) -> None:
    before = publisher.prefix(1)
    assert not await opens(publisher, wanted=False)
    assert publisher.prefix(1) != before


async def test_what_was_withdrawn_is_removed_again_with_the_next_header_alone(
    store: RecordingStore, publisher: Publisher
) -> None:
    withdrawn = Delete(f"{KEYS.assignments}{publisher.prefix(1)}/", prefix=True)
    assert not await opens(publisher, wanted=False)
    assert await opens(publisher)
    assert withdrawn in store.last
    assert await opens(publisher, 2)
    assert withdrawn not in store.last


async def test_the_word_of_an_eviction_is_remembered_also_where_it_was_refused(
    store: RecordingStore, publisher: Publisher
) -> None:
    await election.resign(store, publisher.leadership)
    with pytest.raises(Deposed):
        await publisher.evict(KEYS.node("a"), 0, "life", EVICTION)
    assert "life" in publisher.words


async def test_a_job_that_has_succeeded_leaves_no_key(store: RecordingStore, publisher: Publisher) -> None:
    assert await opens(publisher)
    await publisher.evict(KEYS.node("a"), 0, "life", EVICTION)
    assert await store.get(KEYS.eviction("life"))
    said = (KEYS.success("life"), KEYS.ledger("data"), KEYS.queue("data"), KEYS.targets, KEYS.slots, KEYS.server(0))
    await store.txn((), [Put(key, b"") for key in said])
    await publisher.clean_up(succeeded=True)
    assert (await store.list(KEYS.root)).items == ()


async def test_a_job_that_has_not_succeeded_leaves_its_queues_but_no_slots(
    store: RecordingStore, publisher: Publisher
) -> None:
    assert await opens(publisher)
    await store.txn((), [Put(key, b"") for key in (KEYS.queue("data"), KEYS.slots, KEYS.server(0))])
    await publisher.clean_up(succeeded=False)
    assert [item.key for item in (await store.list(KEYS.root)).items] == [KEYS.queue("data")]


async def test_who_begins_anew_after_a_run_that_nobody_ended_finds_no_slots_of_it(
    store: RecordingStore, publisher: Publisher
) -> None:
    await store.txn((), [Put(KEYS.slots, b"")])
    await publisher.drop_data(queues=False)
    assert await store.get(KEYS.slots) is None


async def test_what_the_time_went_into_is_kept_for_the_next_master_and_goes_with_the_round(
    store: RecordingStore, publisher: Publisher
) -> None:
    assert await opens(publisher)
    changes: Sequence[tuple[Category, int]] = (("infrastructure_recovery_from_disruption", 1), ("productive", 2))
    for becomes, value in changes:
        await publisher.keep_time(publisher.prefix(1), SplitUntil(1, becomes, Split(productive=value)))
        found = await takeover.find(store, KEYS, publisher, pytest.fail)
        assert found.spent and (found.spent.now, found.spent.split.productive) == (becomes, value)
        assert [each.node for each in found.assigned] == ["a"]
    assert await publisher.open(header(publisher, 2), assign(2, [MEMBER]), publisher.prefix(1), lambda: True)
    assert (await takeover.find(store, KEYS, publisher, pytest.fail)).spent is None
    await store.revoke(publisher.lease)
    with pytest.raises(Deposed):
        await publisher.keep_time(publisher.prefix(2), SplitUntil(2, "productive", Split()))


def wants(count: int) -> Targets:
    return Targets((Target("", count, KeepsItsSize()),))


async def test_targets_are_written_when_they_are_others_than_the_key_holds(
    store: RecordingStore, publisher: Publisher
) -> None:
    async def writes(count: int) -> int:
        await publisher.put_targets(wants(count))
        found = await store.get(KEYS.targets)
        assert found and decode(Targets, found.value) == wants(count)
        return found.mod_revision

    first = await writes(3)
    assert await writes(3) == first, "an earlier leader's, or an attempt's whose answer was lost"
    assert await writes(4) > first
    late = Compare(KEYS.targets, first, "mod")  # an attempt to replace the first one
    assert not (await store.txn([publisher.leadership.fence, late], [Put(KEYS.targets, b"")])).succeeded
    await store.txn([], [Put(KEYS.targets, b"a hand's")])
    await writes(4)
    await store.txn([], [Delete(KEYS.targets)])
    await writes(4)


async def test_targets_are_written_also_where_another_attempt_is_faster(publisher: Publisher) -> None:
    class Overtaken(MemoryStore):
        overtakes = 2

        async def get(self, key: str) -> KeyValue | None:
            found = await super().get(key)
            if self.overtakes:
                self.overtakes -= 1
                await super().txn([], [Put(key, b"%d" % self.overtakes)])
            return found

    store = Overtaken()
    await store.txn([], [Put(KEYS.leader, b"")])
    held = await store.get(KEYS.leader)
    assert held
    publisher.store, publisher.leadership = store, election.Leadership(KEYS.leader, held.create_revision)
    await publisher.put_targets(wants(3))
    written = await store.get(KEYS.targets)
    assert written and decode(Targets, written.value) == wants(3)


async def test_a_deposed_master_changes_no_target(store: RecordingStore, publisher: Publisher) -> None:
    await publisher.put_targets(wants(3))
    await election.resign(store, publisher.leadership)
    with pytest.raises(Deposed, match="its lease expired"):
        await publisher.put_targets(wants(4))
    assert await election.campaign(store, KEYS, Leader("b", "other", ""), await store.grant(60))
    with pytest.raises(Deposed, match="another master leads"):
        await publisher.put_targets(wants(4))
    found = await store.get(KEYS.targets)
    assert found and decode(Targets, found.value) == wants(3)


async def test_who_is_elected_after_a_success_finds_that_out_and_leads_only_where_it_asks_to(
    store: RecordingStore, publisher: Publisher
) -> None:
    await opens(publisher)
    end = dataclasses.replace(header(publisher, 2), state="succeeded")
    await publisher.put_header(end)
    await publisher.clean_up(succeeded=True)
    late, lease = Leader("b", "other", ""), await store.grant(60)
    assert await election.campaign(store, KEYS, late, lease) == election.Succeeded(end)
    assert await store.get(KEYS.leader) is None
    assert await election.campaign(store, KEYS, late, lease, after_success=1) == election.Succeeded(None)
    assert await store.get(KEYS.leader) is None, "the header that it saw has been removed meanwhile"
    won = await election.campaign(store, KEYS, late, lease, after_success=0)
    assert isinstance(won, election.Leadership)
    assert isinstance(await election.campaign(store, KEYS, Leader("c", "third", ""), lease), election.Held)
