"""Keeps the table of slots in the store as it is to be, beside the job's master.

It follows who is registered, asks `placement.py`, and writes what that says: fenced, and over the very table that it
was worked out from, so a late attempt of an earlier write changes nothing. What it knows is in the store; the next
leader's goes on where this one was.

A store that was away for long has ended all leases. Who comes back within `PATIENCE` had only been out of sight: a slot
that nobody else holds waits for its server so long, and a node keeps its places.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.errors import Deposed
from ...rendezvous.base.frozen import replace
from ...rendezvous.election import Leadership
from ...rendezvous.header import Header
from ...rendezvous.keys import Keys
from ...rendezvous.member import DEPARTING, Member
from ...rendezvous.store.contract import Compare, KeyValue, Put, Store
from ...rendezvous.store.waits import Waits
from ...rendezvous.wire.values import decode_or_none, encode
from .checkpoint_folder import CheckpointFolder
from .checkpoint_keeper import CheckpointKeeper
from .placement import ServersWanted, plan_slots
from .slot_table import NOBODY, RunningServer, SlotTable

PATIENCE = 10.0
"""Seconds that who was registered has to come back; a node whose lease has ended takes it up again at once."""

TABLE = "which parameter server holds which rows"
"""What may wait for the store."""


class SlotKeeper:
    """Works beside a job's masters (`BesideMaster`).

    Args:
        wanted: what the job was started with.
        patience: as PATIENCE.
        checkpoints: where they are, and the seconds from one to the next; None: there are none.
    """

    def __init__(
        self,
        wanted: ServersWanted,
        patience: float = PATIENCE,
        checkpoints: tuple[CheckpointFolder, float] | None = None,
    ) -> None:
        self._wanted = wanted
        self._patience = patience
        self._checkpoints = checkpoints

    async def work_beside(
        self, store: Store, keys: Keys, leadership: Leadership, say: Callable[[str], None], waits: Waits
    ) -> None:
        """Keeps the table until it is cancelled. Raises Deposed when another master leads, StoreRefused."""
        table = _TableOfLeader(store, keys, leadership, say, waits, self._wanted, self._patience, self._checkpoints)
        await table.keep_table()


class Absences:
    """Since when those that were there are not, of one kind (pure).

    Attributes:
        until: when the next of them is not waited for any more; None: nobody is.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[str, float] = {}
        self.until: float | None = None

    def list_awaited(self, known: Collection[str], present: Collection[str], now: float) -> set[str]:
        """Those of the `known` that are not `present`, and may come back."""
        self._since = {each: self._since.get(each, now) for each in known if each not in present}
        awaited = {each: since + self._patience for each, since in self._since.items() if now < since + self._patience}
        self.until = min(awaited.values(), default=None)
        return set(awaited)


class _TableOfLeader:
    """The table under one leadership."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        leadership: Leadership,
        say: Callable[[str], None],
        waits: Waits,
        wanted: ServersWanted,
        patience: float,
        checkpoints: tuple[CheckpointFolder, float] | None,
    ) -> None:
        self._store, self._keys, self._leadership = store, keys, leadership
        self._say, self._waits, self._wanted = say, waits, wanted
        self._nodes: dict[str, bool] = {}  # by name: it has not said that it leaves
        self._left: set[str] = set()  # and is not there any more, in order
        self._servers: dict[str, RunningServer | None] = {}  # by key
        self._table = SlotTable()
        self._revision = 0  # the mod revision of the table in the store
        self._written_at = 0  # the store's, when that was seen
        self._away_nodes, self._away_servers = Absences(patience), Absences(patience)
        self._rows_from = 0  # of the header
        self._unread = 4
        self._changed = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._checkpoints = CheckpointKeeper(*checkpoints, say, self._changed.set) if checkpoints else None

    async def keep_table(self) -> None:
        """See `SlotKeeper.work_beside`."""
        if self._checkpoints:
            await self._checkpoints.read_folder()
        self._table = self._first_table()
        followed = (
            (self._keys.nodes, self._see_node),
            (self._keys.servers, self._see_server),
            (self._keys.slots, self._see_table),
            (self._keys.round, self._see_header),
        )
        tasks = [asyncio.create_task(self._follow(prefix, see), name=f"slots: {prefix}") for prefix, see in followed]
        try:
            while True:
                self._changed.clear()
                for task in tasks:
                    if task.done():
                        task.result()
                if self._unread <= 0:
                    while await self._take_step():
                        pass
                    if self._checkpoints:
                        self._checkpoints.finish_checkpoint(self._table, self._running())
                moments = (each.until for each in (self._away_nodes, self._away_servers, self._checkpoints) if each)
                until = min((each for each in moments if each is not None), default=None)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await self._changed.wait()
        finally:
            await cancel(*tasks)
            if self._checkpoints:
                await self._checkpoints.close()

    def _first_table(self) -> SlotTable:
        """Its version is larger than that of any table before, which was written at a smaller revision, and than any
        checkpoint's number: versions never go back."""
        newest, largest = (self._checkpoints.newest, self._checkpoints.largest) if self._checkpoints else (0, 0)
        return SlotTable(version=max(self._table.version, self._leadership.revision, largest), restore=newest)

    def _running(self) -> list[RunningServer]:
        return [each for each in self._servers.values() if each and each.node in self._nodes]

    # -- what the store says ----------------------------------------------------------------------------------------

    async def _follow(self, prefix: str, see: Callable[[str, KeyValue | None, int], None]) -> None:
        """Has `see` know each key as it is, then each change (None: it is absent), with the store's revision."""
        first = 1

        async def see_changes(seen: Mapping[str, KeyValue | None], revision: int) -> bool:
            nonlocal first
            for key, found in seen.items():
                see(key, found, revision)
            if first:
                self._unread, first = self._unread - first, 0
                self._changed.set()
            return False

        try:
            await self._waits.follow_keys(TABLE, self._store, prefix, see_changes)
        finally:
            self._changed.set()  # so that `keep_table` sees that this has ended

    def _see_node(self, key: str, found: KeyValue | None, _: int) -> None:
        node = self._keys.node_at(key)
        if found is None:
            if self._nodes.pop(node, True):
                self._left.discard(node)
            else:
                self._left.add(node)
            self._changed.set()
            return
        member = decode_or_none(Member, found.value)
        stays = member is not None and member.report.state not in DEPARTING
        if self._nodes.get(node) != stays:
            self._nodes[node] = stays
            self._changed.set()

    def _see_server(self, key: str, found: KeyValue | None, _: int) -> None:
        self._servers.pop(key, None)
        if found:
            self._servers[key] = decode_or_none(RunningServer, found.value)
        self._changed.set()

    def _see_header(self, _: str, found: KeyValue | None, __: int) -> None:
        header = decode_or_none(Header, found.value) if found else None
        if header and header.rows_from != self._rows_from:
            self._rows_from = header.rows_from
            self._changed.set()

    def _see_table(self, _: str, found: KeyValue | None, revision: int) -> None:
        """Takes the table over, unless this very leader has written a newer one since."""
        if revision <= self._written_at:
            return
        self._written_at = revision
        table = decode_or_none(SlotTable, found.value) if found else None
        self._revision = found.mod_revision if found else 0
        self._table = table or self._first_table()
        self._changed.set()

    # -- what is written --------------------------------------------------------------------------------------------

    async def _take_step(self) -> bool:
        """Whether the table in the store has changed, by this leader or by an attempt of its own."""
        before, now = self._table, self._now()
        running = self._running()
        places = {place.node for place in before.places} - self._left
        nodes = {node for node, stays in self._nodes.items() if stays}
        nodes |= self._away_nodes.list_awaited(places, self._nodes, now)
        held = [each.incarnation for each in before.servers]
        awaited = self._away_servers.list_awaited(held, {each.incarnation for each in running}, now)
        newest = self._checkpoints.newest if self._checkpoints else 0
        after = plan_slots(before, running, nodes, self._wanted, awaited, newest, self._rows_from)
        if self._checkpoints:
            if after is before:
                after = self._checkpoints.order_checkpoint(before, running)
            elif after.goes_back:
                after = replace(after, lost=f"{after.lost}: {self._checkpoints.describe_return()}")
        if after is before:
            return False
        value = encode(after)
        write = partial(
            self._store.txn,
            [self._leadership.fence, Compare(self._keys.slots, self._revision, "mod")],
            [Put(self._keys.slots, value)],
            idempotent=True,
        )
        result = await self._waits.until_answered(TABLE, write)
        if result.succeeded:
            self._table, self._revision, self._written_at = after, result.revision, result.revision
        else:
            leader, current = result.current
            if why := self._leadership.over(leader):
                raise Deposed(why)
            self._see_table(self._keys.slots, current, result.revision)
            if current is None or current.value != value:  # not by an attempt of this one whose answer was lost
                return True
        for line in describe_change(before, after, running):
            self._say(line)
        return True


def describe_change(before: SlotTable, after: SlotTable, running: Iterable[RunningServer]) -> Iterator[str]:
    """What a person should know of it, in lines (pure)."""
    lives = {each.incarnation for each in running}
    if after.restore and after.primary and not before.primary:
        again = "again with checkpoint {0}" if after.rows_from else "with checkpoint {0} of an earlier run of this job"
        yield f"tables begin {again.format(after.restore)}"
    for at, each in enumerate(() if after.goes_back else before.servers):
        gone = each.incarnation not in lives and after.index_of(each.incarnation) == NOBODY
        if gone and (at in before.primary or at in before.backup):
            yield f"parameter server {each.number} on node {each.node} has gone: others go on with its rows"
    if NOBODY in before.backup and after.backup and NOBODY not in after.backup:
        yield "all rows on parameter servers have a second copy"
