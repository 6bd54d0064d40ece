"""The table of servers' slots on a real etcd: leaders in turn, and the late write of one that leads no more."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from elastic_run.master.servers.placement import ServersWanted
from elastic_run.master.servers.slot_keeper import SlotKeeper
from elastic_run.master.servers.slot_table import NOBODY, RunningServer, SlotTable
from elastic_run.rendezvous import election
from elastic_run.rendezvous.base.cancel import cancel
from elastic_run.rendezvous.base.errors import Deposed
from elastic_run.rendezvous.base.frozen import replace
from elastic_run.rendezvous.header import Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.store.contract import Compare, Delete, Operation, Put, TxnResult
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.store.waits import Waits
from elastic_run.rendezvous.wire.values import decode, encode

if TYPE_CHECKING:
    from conftest import Cluster

KEYS = Keys("slots on a real etcd")
WANTED = ServersWanted(least=2, most=4, replicas=1, nodes=2)
SOON = 60.0
"""Seconds after which a wait in a test has failed."""


class HeldStore(EtcdStore):
    """Its writes of slots wait until `go_on` is set, and `waiting` tells that one does."""

    go_on: asyncio.Event | None = None
    waiting: asyncio.Event

    def hold(self) -> asyncio.Event:
        """From now on."""
        self.go_on, self.waiting = asyncio.Event(), asyncio.Event()
        return self.go_on

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        """See `Store.txn`."""
        if self.go_on and any(each.key == KEYS.slots for each in operations):
            self.waiting.set()
            await self.go_on.wait()
        return await super().txn(compares, operations, idempotent=idempotent)


@pytest.fixture
async def stores(shared_etcd: "Cluster") -> AsyncIterator[list[HeldStore]]:
    """One for each of three leaders; the last is also everybody else's."""
    made = [HeldStore(shared_etcd.endpoints) for _ in range(3)]
    yield made
    await made[-1].txn([], [Delete(KEYS.root, prefix=True)])
    for each in made:
        await each.close()


async def test_three_leaders_in_turn_write_one_table_and_the_late_write_of_the_first_changes_nothing(
    stores: list[HeldStore],
) -> None:
    first, second, third = stores
    lease = await third.grant(600)

    async def lead(store: EtcdStore) -> "asyncio.Task[None]":
        await third.txn([], [Delete(KEYS.leader)])
        won = await election.campaign(store, KEYS, Leader("leader", f"{id(store)}", ""), lease)
        assert isinstance(won, election.Leadership)
        waits = Waits(print, asyncio.get_running_loop().time)
        return asyncio.create_task(SlotKeeper(WANTED).work_beside(store, KEYS, won, print, waits))

    async def come(*nodes: str) -> None:
        members = (Member(node, node, "host", "", 1, (1,), Fingerprint("x", (), "2", "1", "0")) for node in nodes)
        await third.txn([], [Put(KEYS.node(each.node), encode(each), lease) for each in members])

    async def table_that(fits: Callable[[SlotTable], bool]) -> SlotTable:
        """As soon as there is one; meanwhile servers run where it wants them, and copy what it wants them to."""
        while True:
            found = await third.list(KEYS.slots)
            table = decode(SlotTable, found.items[0].value) if found.items else SlotTable()
            if fits(table):
                return table
            for place in table.places:
                server = RunningServer(place.number, f"{place.number}", place.node)
                server = replace(server, joined=0 if set(table.joining) <= {NOBODY} else table.version)
                if await third.get(KEYS.node(place.node)):
                    await third.txn([], [Put(KEYS.server(place.number), encode(server), lease)])
            async for _ in third.watch(KEYS.slots, found.revision + 1):
                break

    def serve(count: int) -> Callable[[SlotTable], bool]:
        return lambda table: (
            len(set(table.primary)) == count and NOBODY not in table.backup and set(table.joining) == {NOBODY}
        )

    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(SOON):
            tasks.append(await lead(first))
            await come("A", "B")
            await table_that(serve(2))
            go_on = first.hold()
            await come("C")
            await first.waiting.wait()  # with a place for the third node
            tasks.append(await lead(second))
            of_second = await table_that(serve(3))
            go_on.set()
            with pytest.raises(Deposed, match="another master leads"):
                await tasks[0]
            tasks.append(await lead(third))
            await come("D")
            of_third = await table_that(serve(4))
            assert of_third.version > of_second.version
            assert [place.node for place in of_third.places] == ["A", "B", "C", "D"]
    finally:
        await cancel(*tasks)
