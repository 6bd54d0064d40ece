"""Keeps the parameter servers that the job wants on this node, and tells workers where all of them are.

It looks at the table of slots, at its processes and at the node's registration, whichever has changed, and makes the
processes and their keys in the store as the table wants them. What a lost server means for the rows is decided by the
table's planner (`master/servers/placement.py`).
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ...adapters.servers.job_servers import UNREADABLE, JobServers, ServerOrders
from ...master.machine.parameter_servers import NodeServers, RankWait, ServerReport
from ...master.servers.slot_table import NOBODY, RunningServer, SlotTable
from ...rendezvous.base.errors import StoreError
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.base.tasks import Tasks
from ...rendezvous.identity.servers import ServersTls
from ...rendezvous.keys import Keys
from ...rendezvous.store.contract import Compare, Delete, KeyValue, Put, Store
from ...rendezvous.store.waits import Waits
from ...rendezvous.wire.values import Malformed, decode, decode_or_none, encode
from ..inbox import Inbox
from ..machine.node_state import NodeState
from ..setup import Setup
from ..workers.services import Services
from ..workers.worker_starter import StartFailed
from .server_process import MODULE, ServerProcess

TABLE = "reading which server has which ids"
REGISTRATION = "the registration of a server"
"""What may wait for the store."""

ANSWER_SECONDS = 1.0
"""For a table that is newer than the worker's."""

WAIT_SECONDS = ANSWER_SECONDS + 1.5
"""For which a worker is taken to wait that has said so: it asks again as soon as it is answered."""

AGAIN_SECONDS = 0.2
"""Until the next attempt at what the store has not taken."""

CERTIFICATES_SECONDS = 3600.0
"""Between two looks at whether certificates were issued anew."""

READY_SECONDS = 300.0
"""For a server to be ready: its loops are compiled at the first start."""

MOST_DEATHS = 3
"""Servers of one place, one after the other, that die before they are ready."""

Certificates = Callable[[float], tuple[ServersTls, ServersTls]]
"""A server's and a worker's, at a time in seconds since the epoch."""


@dataclass(eq=False, repr=False)
class ServerHost:
    """The servers of one node.

    Args:
        setup, store, keys, waits, inbox, say, services: as for `Host`.
        certificates: for connections between nodes; None: they are as they are.
        arguments: of the server, after the interpreter.
        logs: the folder for what has happened to servers, by which another process goes on in the place of one that
            has ended; None: there is none.

    Attributes:
        table: the newest that was read.
        failure: why the job cannot go on, in words; empty where it can, or where that may be an earlier run's affair.
    """

    _setup: Setup
    _store: Store
    _keys: Keys
    _waits: Waits
    _inbox: Inbox
    _say: Callable[[str], None]
    _services: Callable[[], Services]
    _certificates: Certificates | None = None
    _arguments: tuple[str, ...] = ("-m", MODULE)
    _logs: Path | None = None

    def __post_init__(self) -> None:
        self._tasks = Tasks(self._inbox.wake)
        self._kept: dict[int, ServerProcess] = {}
        self._deaths: dict[int, int] = {}  # by place, of those that were not ready
        self._resumed: dict[int, ServerProcess] = {}  # have ended, and another process is to go on as each, by its log
        self._logged: set[int] = set()  # places whose servers have had a log
        self._left: dict[str, str] = {}  # keys of servers that have ended, and the incarnation of each
        self._node = ""  # as it was registered last
        self._waits_of_ranks: dict[int, tuple[float, RankWait]] = {}  # when each has told of one last
        self._again = False  # something waits for the store
        self._given_up = ""
        self._read_again = ("", 0)  # the run in which a table with lost rows was read once more, and its version
        self.table = SlotTable()

    @property
    def failure(self) -> str:
        ends = self.table.lost and not self.table.goes_back and self._read_again == self._newest
        return self._given_up or (self.table.lost if ends else "")

    @property
    def return_wanted(self) -> str:
        """Why the job is to go back to a checkpoint, in words; empty where it is not, or a round is open for that."""
        wanted = self.table.goes_back and self._read_again == self._newest
        return self.table.lost if wanted and self._rows_from <= self.table.rows_from else ""

    @property
    def _rows_from(self) -> int:
        """The round that was opened last to go back to a checkpoint, as far as this node knows."""
        header = self._inbox.state.known.header
        return header.rows_from if header else 0

    @property
    def _newest(self) -> tuple[str, int]:
        """The node's run, empty before it has a part in one, and the table's version."""
        return self._inbox.state.known.own_run, self.table.version

    async def run(self) -> None:
        """Keeps what the table wants here, until it is cancelled."""
        following = self._waits.follow_key(TABLE, self._store, self._keys.slots, self._take_table)
        self._tasks.begin(following, "slots")
        while True:
            heard = self._inbox.count
            self._tasks.check()
            await self._keep_places()
            await self._read_loss()
            await self._inbox.news(heard, AGAIN_SECONDS if self._again else CERTIFICATES_SECONDS)

    async def answer(self, version: int, wait: RankWait, round: int) -> str:
        """JobServers as JSON, as soon as a table serves that is newer than this version, or after ANSWER_SECONDS."""
        self._waits_of_ranks[wait.rank] = self._inbox.now(), wait
        until = self._inbox.now() + ANSWER_SECONDS
        while (
            not ((table := choose_table(self.table, round, self._rows_from)).serves and table.version > version)
            and not self.failure
        ):
            heard, left = self._inbox.count, until - self._inbox.now()
            if left <= 0:
                break
            await self._inbox.news(heard, left)
        if table.serves and not wait.servers:  # which was what it waited for
            self._waits_of_ranks.pop(wait.rank, None)
        tls = self._certificates(time.time())[1] if self._certificates else None
        return encode(JobServers(table, self._node or self._setup.workers.node, tls)).decode()

    def describe(self) -> NodeServers:
        """The servers of this node as they are now, and the workers that wait for some."""
        now, table = self._inbox.now(), self.table
        wanted = sorted({place.number for place in table.places if place.node == self._node} | self._kept.keys())
        servers = (self._kept[each].describe() if each in self._kept else ServerReport(each) for each in wanted)
        waits = {rank: told for rank, told in self._waits_of_ranks.items() if told[0] >= now - WAIT_SECONDS}
        self._waits_of_ranks = waits
        return NodeServers(
            self._node,
            tuple(count_slots(each, table) for each in servers),
            tuple(replace(wait, seconds=wait.seconds + now - at) for _, (at, wait) in sorted(waits.items())),
        )

    async def give_away(self) -> None:
        """Waits until no server is wanted here any more, where this node leaves and others can take its rows over.

        For --shutdown-timeout seconds from the notice on, at most, and not after a second signal.
        """
        while self._can_give_away(self._inbox.state):
            heard, left = self._inbox.count, self._leaves_until - self._inbox.now()
            if left <= 0:
                self._say("this node leaves with rows that no other server has taken over yet")
                return
            await self._inbox.news(heard, left)

    def _can_give_away(self, state: NodeState) -> bool:
        header, nodes = state.known.header, {place.node for place in self.table.places}
        goes_on = header is not None and header.state == "open" and not (self.failure or self.table.goes_back)
        return goes_on and state.notice.kind == "leave" and self._node in nodes and len(nodes) > 1

    @property
    def _leaves_until(self) -> float:
        return self._inbox.state.notice.at + self._setup.shutdown_timeout

    def pause(self) -> None:
        """Stops the servers where they are."""
        for each in self._kept.values():
            each.pause()

    def resume(self) -> None:
        """Lets them continue."""
        for each in self._kept.values():
            each.resume()

    async def close(self) -> None:
        """Ends the servers."""
        await self._tasks.close()
        await asyncio.gather(*(each.end() for each in self._kept.values()))
        for number in self._logged:
            self._remove_logs(number)
        if self._logs is not None:
            with contextlib.suppress(OSError):  # another agent of this machine has logs there, or there are none
                self._logs.rmdir()
        self._kept.clear()

    async def _take_table(self, found: KeyValue | None) -> bool:
        try:
            table = decode(SlotTable, found.value) if found else SlotTable()
        except Malformed as error:
            self._say(f"ignored, as another version has written it: {error}")
            return False
        if table != self.table:
            self.table = table
            self._inbox.wake()
        return False

    async def _read_loss(self) -> None:
        """Reads a table with lost rows once more, in the node's run: before, it may be an earlier run's.

        A run's master removes what earlier ones have left, and then lets nodes have a part in it.
        """
        run = self._inbox.state.known.own_run
        if not run or not self.table.lost or self._read_again == self._newest:
            return
        try:
            await self._take_table(await self._store.get(self._keys.slots))
        except StoreError as error:
            self._try_later(error)
        else:
            self._read_again = (run, self.table.version)
            self._inbox.wake()

    async def _keep_places(self) -> None:
        """Makes the processes, and what the store has of them, as they are to be."""
        self._node, self._again = self._inbox.state.key.name or self._node, False
        places = {place.number for place in self.table.places if place.node == self._node}
        for each in list(self._kept.values()):
            if each.ended:
                await self._bury(each)
            elif each.rows_from != self.table.rows_from:
                await self._end(each, at_once=True)  # nobody may have these rows any more
            elif each.number not in places:
                await self._end(each)
        for number, each in list(self._resumed.items()):
            if number not in places or each.rows_from != self.table.rows_from:
                del self._resumed[number]
                self._left[self._keys.server(number)] = each.incarnation
        for key, incarnation in list(self._left.items()):
            if await self._remove(key, incarnation):
                del self._left[key]
        for number in sorted(places):
            if (each := self._kept.get(number)) is not None:
                each.tell_orders(self._orders(each))
                await self._hear_server(each)
            elif not self.failure and not self.table.goes_back:
                await self._start(number)
        if not self._again:
            self._waits.done(REGISTRATION)

    def _orders(self, each: ServerProcess) -> ServerOrders:
        setup = self._setup
        tls = self._certificates(time.time())[0] if self._certificates else None
        return ServerOrders(self.table, each.incarnation, setup.host, setup.bind, tls)

    async def _start(self, number: int) -> None:
        setup = self._setup
        before, words = self._resumed.get(number), self._arguments
        each = ServerProcess(number, self._services(), self._inbox.wake, float(setup.lease_ttl), READY_SECONDS)
        if before is not None:
            each.incarnation, each.revision = before.incarnation, before.revision
        if self._logs is not None:
            if before is None:
                self._remove_logs(number)
            self._logged.add(number)
            words = (*words, f"--log={self._log_of(self._logs, each)}")
        each.arguments = words
        try:
            await each.start(self._orders(each), (setup.workers.python, "-u"), setup.workers.inherited)
        except StartFailed as error:
            self._count_death(number, str(error))
        else:
            self._kept[number] = each
            self._resumed.pop(number, None)

    def _log_of(self, logs: Path, each: ServerProcess) -> Path:
        return logs / f"server-{each.number}" / each.incarnation

    def _remove_logs(self, number: int) -> None:
        """Of servers whose rows nobody wants any more."""
        if self._logs is not None:
            shutil.rmtree(self._logs / f"server-{number}", ignore_errors=True)

    async def _hear_server(self, each: ServerProcess) -> None:
        """Has the store know what it says of itself."""
        running = each.listen(self._node)
        if running is None:
            return
        self._deaths.pop(each.number, None)
        key = self._inbox.state.key
        if key.registration and key.registered and each.registered != (key.registration.lease, running):
            await self._register(each, running, key.registration.lease)

    async def _register(self, each: ServerProcess, running: RunningServer, lease: int) -> None:
        name = self._keys.server(each.number)
        compare, put = Compare(name, each.revision, "mod"), Put(name, encode(running), lease)
        try:
            written = await self._store.txn((compare,), (put,), idempotent=True)
        except StoreError as error:
            self._try_later(error)
            return
        if written.succeeded:
            each.registered, each.revision = (lease, running), written.revision
            return
        self._again = True
        current = written.current[0]
        other = decode_or_none(RunningServer, current.value) if current else None
        if current is None or (other and other.node == self._node):  # else the other node's agent takes it away
            each.revision = current.mod_revision if current else 0

    async def _remove(self, key: str, incarnation: str) -> bool:
        """Has the store forget this server; whether it has, or never knew it."""
        try:
            found = await self._store.get(key)
            known = decode_or_none(RunningServer, found.value) if found else None
            if found is None or known is None or known.incarnation != incarnation:
                return True
            compare = Compare(key, found.mod_revision, "mod")
            result = await self._store.txn((compare,), (Delete(key),), idempotent=True)
        except StoreError as error:
            self._try_later(error)
            return False
        self._again = self._again or not result.succeeded
        return result.succeeded

    def _try_later(self, error: StoreError) -> None:
        self._waits.failed(REGISTRATION, error)
        self._again = True

    async def _bury(self, each: ServerProcess) -> None:
        why = each.failure
        if self._can_resume(each) and UNREADABLE not in why:
            del self._kept[each.number]
            self._resumed[each.number] = each
            await each.end(at_once=True)
        else:
            await self._end(each, at_once=True)
        if UNREADABLE in why:
            self._given_up = why  # another one would fare no better
            self._inbox.wake()
        elif not each.ready:
            self._count_death(each.number, why)
        elif each.hung:  # how others ended is printed as it is for any service
            self._say(why)

    def _can_resume(self, each: ServerProcess) -> bool:
        """The table names it, and its log has what it was. The store has it still, so that nobody takes it for lost.

        Without its log another process would be that server without a row, and nobody would know.
        """
        named = self.table.index_of(each.incarnation) != NOBODY and each.rows_from == self.table.rows_from
        if self._logs is None or not named or not each.revision:
            return False
        return any(self._log_of(self._logs, each).glob("log-*"))

    async def _end(self, each: ServerProcess, *, at_once: bool = False) -> None:
        del self._kept[each.number]
        if each.ready:
            self._left[self._keys.server(each.number)] = each.incarnation
        await each.end(at_once=at_once)
        self._remove_logs(each.number)

    def _count_death(self, number: int, why: str) -> None:
        self._deaths[number] = deaths = self._deaths.get(number, 0) + 1
        if deaths >= MOST_DEATHS:
            self._given_up = f"no server can be started on node {self._node}, {deaths} times in a row: {why}"
        else:
            self._say(f"{why}: starting it again")
        self._inbox.wake()


def choose_table(table: SlotTable, started: int, rows_from: int) -> SlotTable:
    """What a worker is told: a table without slots where it may not use these (pure).

    When a job has gone back to a checkpoint, no worker of before may push into its rows, and none of after into others.

    Args:
        started: the round for which it was.
        rows_from: of the newest header.
    """
    usable = table.rows_from <= started and (started < rows_from or rows_from <= table.rows_from)
    return table if usable and not table.goes_back else SlotTable(restore=table.restore)


def count_slots(report: ServerReport, table: SlotTable) -> ServerReport:
    """With the slots that this table gives to the server (pure)."""
    if (at := table.index_of(report.incarnation)) == NOBODY:
        return report
    mine = [slot for slot, primary in enumerate(table.primary) if primary == at]
    bare = sum(table.backup[slot] == NOBODY for slot in mine)
    return replace(report, slots=len(mine), backups=table.backup.count(at), bare=bare)
