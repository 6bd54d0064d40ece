"""The table of slots is kept in the store by whoever leads: on the store in memory, and a clock that jumps."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from elastic_run.master.servers.placement import ServersWanted, lose_rows
from elastic_run.master.servers.slot_keeper import PATIENCE, Absences, SlotKeeper
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, SlotTable
from elastic_run.rendezvous import election
from elastic_run.rendezvous.base.errors import Deposed, MaybeApplied, StoreUnavailable
from elastic_run.rendezvous.base.frozen import replace
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member, Report, State
from elastic_run.rendezvous.reasons import NoChange
from elastic_run.rendezvous.store.contract import Compare, Delete, Event, Listing, Operation, Put, TxnResult
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.waits import Waits
from elastic_run.rendezvous.wire.values import decode, encode

from ....doubles.virtual_loop import VirtualLoop

KEYS = Keys("job")
FINGERPRINT = Fingerprint("train.py", (), "1:4", "1", "0")


class FailingStore(MemoryStore):
    """A store with faults.

    Attributes:
        fails: how some of its next writes of slots fail: before they are applied, or after.
        slow: seconds that a read of this prefix takes, and each change until a watch tells of it.
        refused: writes of slots that changed nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails: list[type[StoreUnavailable]] = []
        self.slow: dict[str, float] = {}
        self.refused = 0

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        """See `Store.list`."""
        listing = await super().list(prefix, keys_only=keys_only)
        await asyncio.sleep(self.slow.get(prefix, 0.0))
        return listing

    async def watch(self, key: str, from_revision: int, *, prefix: bool = False) -> AsyncGenerator[tuple[Event, ...]]:
        """See `Store.watch`."""
        async with contextlib.aclosing(super().watch(key, from_revision, prefix=prefix)) as changes:
            async for each in changes:
                await asyncio.sleep(self.slow.get(key, 0.0))
                yield each

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        """See `Store.txn`."""
        slots = any(each.key == KEYS.slots for each in operations)
        fails = self.fails.pop(0) if self.fails and slots else None
        if fails is StoreUnavailable:
            raise StoreUnavailable("away")
        result = await super().txn(compares, operations, idempotent=idempotent)
        self.refused += slots and not result.succeeded
        if fails:
            raise MaybeApplied("the answer was lost")
        return result


class Job:
    """Nodes with a lease each, and leaders that keep the table.

    Attributes:
        leases: of the nodes by name.
    """

    def __init__(self, least: int = 2, most: int = 4, replicas: int = 1) -> None:
        self.wanted = ServersWanted(least, most, replicas)
        self.store = FailingStore()
        self.said: list[str] = []
        self.leases: dict[str, int] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.lives = 0

    async def lead(self, name: str = "leader") -> election.Leadership:
        """A process is elected, in place of whoever leads, and keeps the table."""
        await self.store.txn([], [Delete(KEYS.leader)])
        won = await election.campaign(self.store, KEYS, Leader(name, name, ""), await self.store.grant(60_000))
        assert isinstance(won, election.Leadership)
        waits = Waits(self.said.append, asyncio.get_running_loop().time)
        keeper = SlotKeeper(self.wanted)
        work = keeper.work_beside(self.store, KEYS, won, self.said.append, waits)
        self.tasks.append(asyncio.create_task(work))
        await quiet()
        return won

    async def come(self, *nodes: str) -> None:
        """Nodes register, and each runs the servers that the table wants there."""
        for node in nodes:
            self.leases[node] = await self.store.grant(60_000)
        await self.report("running", *nodes)
        await self.start(*nodes)

    async def report(self, state: State, *nodes: str) -> None:
        puts: list[Operation] = []
        for node in nodes:
            member = Member(node, f"{node}#1", "host", "", 1, (5001,), FINGERPRINT, report=Report(state=state))
            puts.append(Put(KEYS.node(node), encode(member), self.leases[node]))
        await self.store.txn([], puts)
        await quiet()

    async def start(self, *nodes: str) -> None:
        """Where these nodes have places without a server they start one, and end those without a place."""
        places = (await self.table()).places
        wanted = {place.number for place in places}
        for number, each in (await self.servers()).items():
            if number not in wanted and each.node in nodes:
                await self.store.txn([], [Delete(KEYS.server(number))])
        for place in places:
            if place.node in nodes and await self.store.get(KEYS.server(place.number)) is None:
                self.lives += 1
                await self.register(RunningServer(place.number, f"life {self.lives}", place.node))

    async def register(self, server: RunningServer) -> None:
        put = Put(KEYS.server(server.number), encode(server), self.leases[server.node])
        await self.store.txn([], [put])
        await quiet()

    async def go(self, node: str) -> None:
        """Its lease ends."""
        await self.store.revoke(self.leases.pop(node))
        await quiet()

    async def servers(self) -> dict[int, RunningServer]:
        found = [decode(RunningServer, item.value) for item in (await self.store.list(KEYS.servers)).items]
        return {each.number: each for each in found}

    async def copied(self) -> None:
        """All servers tell that what others join for is whole, until nothing is joining."""
        while any(at != NOBODY for at in (await self.table()).joining):
            for each in (await self.servers()).values():
                await self.register(replace(each, joined=(await self.table()).version))

    async def table(self) -> SlotTable:
        found = await self.store.get(KEYS.slots)
        return decode(SlotTable, found.value) if found else SlotTable()

    async def held(self) -> set[int]:
        """The numbers of all primaries."""
        table = await self.table()
        return {table.servers[at].number for at in table.primary}


async def quiet() -> None:
    """Everything that can happen at this moment has happened: the clock moves only then."""
    await asyncio.sleep(1e-6)


def simulate(scenario: Callable[[Job], Coroutine[Any, Any, None]], *wanted: int) -> None:
    """Runs it on a fresh job, and expects that its leaders leave no task and no error but that they were deposed."""

    async def run() -> None:
        job = Job(*wanted)
        await scenario(job)
        for task in job.tasks:
            task.cancel()
        ended = await asyncio.gather(*job.tasks, return_exceptions=True)
        assert all(isinstance(each, Deposed | asyncio.CancelledError) for each in ended), ended
        await quiet()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_nodes_get_places_and_their_servers_get_slots() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A")
        assert [place.node for place in (await job.table()).places] == ["A", "A"]
        await job.come("B", "C")
        await job.copied()
        places = (await job.table()).places
        assert [place.node for place in places] == ["A", "B", "C"]
        assert await job.held() == {place.number for place in places}

    simulate(scenario)


def test_what_was_there_before_the_leader_counts_as_well() -> None:
    async def scenario(job: Job) -> None:
        await job.come("A", "B")
        assert (await job.table()).version == 0
        await job.lead()
        await job.start("A", "B")
        assert await job.held() == {0, 1}

    simulate(scenario)


def test_the_backups_take_over_at_once_and_a_person_hears_of_it() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        await job.go("B")
        assert await job.held() == {0, 2} and not (await job.table()).lost
        await job.copied()
        assert NOBODY not in (await job.table()).backup
        assert job.said == [
            "parameter server 1 on node B has gone: others go on with its rows",
            "all rows on parameter servers have a second copy",
        ]

    simulate(scenario)


def test_a_server_whose_node_was_evicted_has_gone_before_its_own_key_has() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        await job.store.txn([], [Delete(KEYS.node("B"))])
        await quiet()
        assert await job.store.get(KEYS.server(1)) and await job.held() == {0, 2}

    simulate(scenario)


def test_three_leaders_in_turn_go_on_with_one_table() -> None:
    async def scenario(job: Job) -> None:
        versions: list[int] = []
        for name, nodes in zip(("first", "second", "third"), ("AB", "C", "D"), strict=True):
            await job.lead(name)
            before = await job.table()
            await job.come(*nodes)
            await job.copied()
            after = await job.table()
            assert name == "first" or after.version > before.version
            versions.append(after.version)
        assert versions == sorted(versions) and await job.held() == {0, 1, 2, 3}
        *deposed, last = job.tasks
        assert all(isinstance(task.exception(), Deposed) for task in deposed) and not last.done()

    simulate(scenario)


def test_who_is_deposed_changes_nothing_and_ends_at_the_next_change() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        await job.copied()
        before = await job.table()
        await job.store.txn([], [Delete(KEYS.leader)])
        await job.go("B")
        assert await job.table() == before
        assert "its lease expired" in str(job.tasks[0].exception())

    simulate(scenario)


def test_a_write_whose_answer_was_lost_is_no_second_one() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        await job.copied()
        before = await job.table()
        job.store.fails = [StoreUnavailable, MaybeApplied]
        await job.go("B")
        await asyncio.sleep(1)
        after = await job.table()
        assert not job.store.fails and after.version == before.version + 1 and await job.held() == {0}
        assert len([line for line in job.said if "has gone" in line]) == 1

    simulate(scenario)


def test_the_table_of_an_older_leader_is_taken_over_where_it_was_written_meanwhile() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        await job.copied()
        by_hand = replace(await job.table(), version=(await job.table()).version + 10)
        job.store.slow[KEYS.slots] = 60.0
        await job.store.txn([], [Put(KEYS.slots, encode(by_hand))])
        await job.go("B")
        assert job.store.refused == 1 and (await job.table()).version == by_hand.version + 1
        assert len([line for line in job.said if "has gone" in line]) == 1

    simulate(scenario)


def test_what_a_slow_watch_tells_of_its_own_writes_changes_nothing() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        job.store.slow[KEYS.slots] = 1.0
        before = await job.table()
        await job.go("B")
        await asyncio.sleep(0.5)
        await job.copied()
        await asyncio.sleep(5.0)
        assert job.store.refused == 0 and (await job.table()).version > before.version

    simulate(scenario)


def test_a_new_leader_decides_nothing_before_it_has_read_who_is_there() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        before = await job.table()
        for prefix in (KEYS.servers, KEYS.nodes):
            job.store.slow = {prefix: 3 * PATIENCE}
            await job.lead(f"slow with {prefix}")
            await asyncio.sleep(6 * PATIENCE)
            assert await job.table() == before

    simulate(scenario)


def test_a_table_that_is_removed_is_followed_by_one_of_a_larger_version() -> None:
    async def scenario(job: Job) -> None:
        leads = await job.lead()
        await job.come("A", "B")
        await job.copied()
        before = await job.table()
        assert before.version > leads.revision
        await job.store.txn([], [Delete(KEYS.slots)])
        await quiet()
        await job.start("A", "B")
        after = await job.table()
        assert after.serves and after.version > before.version
        assert not {each.incarnation for each in before.servers} & {each.incarnation for each in after.servers}
        await job.store.txn([], [Delete(KEYS.slots)])
        await job.lead("another run's")
        assert (await job.table()).version > after.version

    simulate(scenario)


def test_a_table_that_cannot_be_read_is_replaced() -> None:
    async def scenario(job: Job) -> None:
        await job.store.txn([], [Put(KEYS.slots, b"no table")])
        await job.lead()
        await job.come("A", "B")
        assert (await job.table()).serves

    simulate(scenario)


def test_nodes_that_come_back_after_all_leases_have_ended_have_lost_nothing() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        before, servers = await job.table(), await job.servers()
        for node in "ABC":
            await job.store.revoke(job.leases[node])
        await asyncio.sleep(PATIENCE / 2)
        assert not (await job.table()).lost
        for node in "ABC":
            job.leases[node] = await job.store.grant(60_000)
            await job.report("running", node)
        for server in servers.values():
            await job.register(server)
        await job.copied()
        after = await job.table()
        assert not after.lost and {each.incarnation for each in after.servers} == {
            each.incarnation for each in before.servers
        }
        await asyncio.sleep(10 * PATIENCE)
        assert await job.table() == after

    simulate(scenario)


def test_rows_that_nobody_brings_back_are_lost_and_said_to_be() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        await job.go("B")
        await asyncio.sleep(0.9 * PATIENCE)
        assert not (await job.table()).lost
        await asyncio.sleep(0.2 * PATIENCE)
        assert (await job.table()).lost.startswith("parameter server 1 on node B has gone")

    simulate(scenario, 2, 2, 0)


def test_rows_begin_again_for_the_round_that_is_opened_for_it_whoever_leads_then() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        before = await job.table()
        lost = lose_rows(before, "rows are lost", 7)
        await job.store.txn([], [Put(KEYS.slots, encode(lost))])
        await quiet()
        await job.lead("another")
        await job.start("A", "B")
        assert await job.table() == lost
        header = Header(3, "run", "open", "failure", NoChange(), FINGERPRINT, rows_from=3)
        await job.store.txn([], [Put(KEYS.round, encode(header))])
        await quiet()
        after = await job.table()
        assert (after.rows_from, after.restore, after.lost, after.primary) == (3, 7, "", ())
        for server in (await job.servers()).values():
            await job.register(replace(server, incarnation=f"new {server.number}", rows_from=3))
        assert await job.held() == {0, 1} and job.said[-1] == "tables begin again with checkpoint 7"

    simulate(scenario, 2, 2, 0)


def test_a_new_leader_waits_anew_for_who_is_away() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        await job.go("B")
        await asyncio.sleep(0.9 * PATIENCE)
        await job.lead("another")
        await asyncio.sleep(0.9 * PATIENCE)
        assert not (await job.table()).lost
        await asyncio.sleep(0.2 * PATIENCE)
        assert (await job.table()).lost

    simulate(scenario, 2, 2, 0)


def test_another_server_in_its_place_says_at_once_that_rows_are_lost() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B")
        await job.register(RunningServer(1, "another life", "B"))
        assert (await job.table()).lost

    simulate(scenario, 2, 2, 0)


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_node_that_leaves_in_order_takes_no_rows_with_it_and_is_not_waited_for(replicas: int) -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        await job.report("leaving", "B")
        await job.copied()
        assert await job.held() == {0, 2}
        await job.go("B")
        assert [place.node for place in (await job.table()).places] == ["A", "C"]
        assert not any("has gone" in line for line in job.said)

    simulate(scenario, 2, 4, replicas)


def test_who_has_left_before_all_was_copied_keeps_no_place() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come("A", "B", "C")
        await job.copied()
        await job.report("leaving", "B")
        await job.go("B")
        assert [place.node for place in (await job.table()).places] == ["A", "C"]

    simulate(scenario)


def test_who_is_absent_is_awaited_so_long_and_as_long_again_after_a_return() -> None:
    away = Absences(10.0)
    assert away.list_awaited("ab", "ab", 0.0) == set() and away.until is None
    assert away.list_awaited("ab", "a", 1.0) == {"b"} and away.until == 11.0
    assert away.list_awaited("ab", "", 5.0) == {"a", "b"} and away.until == 11.0
    assert away.list_awaited("ab", "", 11.0) == {"a"} and away.until == 15.0
    assert away.list_awaited("ab", "b", 12.0) == {"a"}
    assert away.list_awaited("ab", "a", 13.0) == {"b"} and away.until == 23.0
    assert away.list_awaited("a", "a", 14.0) == set()


def test_a_table_has_all_slots_within_what_a_store_takes() -> None:
    async def scenario(job: Job) -> None:
        await job.lead()
        await job.come(*(f"{'n' * 240}{number}" for number in range(8)))
        found = await job.store.get(KEYS.slots)
        assert found is not None and len(found.value) < 50_000
        assert len((await job.table()).primary) == SLOTS

    simulate(scenario, 8, 8, 1)
