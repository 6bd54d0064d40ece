"""An agent's way to the job's master, for requests to the ledger: one connection, found anew as often as it is lost.

A request may be sent again, to this master or the next: the ledger knows it by its number. So whatever goes wrong, the
way out is the same: find out who leads now, dial, ask again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..adapters.client.channel import Back, Call
from ..master.data.ledger import Answer, Request
from ..master.data.ledger_service import PATIENCE, Ledgers
from ..master.diagnosis.evidence import NodeEvidence
from ..master.diagnosis.examination import EVIDENCE, SECONDS
from ..master.diagnosis.requests import Look
from ..master.machine.pace import Stepped
from ..master.machine.parameter_servers import NodeServers
from ..master.status import Status
from ..rendezvous import failure_detector
from ..rendezvous.base.cancel import cancel
from ..rendezvous.base.errors import Deposed, StoreError
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.base.tasks import Tasks
from ..rendezvous.header import Leader
from ..rendezvous.keys import Keys
from ..rendezvous.membership import read_member
from ..rendezvous.rpc.envelope import Caller, Nothing, RpcError, Security
from ..rendezvous.rpc.server import Method, Methods
from ..rendezvous.store.contract import Store
from ..rendezvous.wire.values import Malformed, decode, encode
from .machine.node_state import KnownRound

if TYPE_CHECKING:
    from ..rendezvous.rpc.client import Connection
    from .candidate import Candidate
    from .clock_reports import ClockReports

T = TypeVar("T")

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds until the next attempt; the last is repeated."""

LEDGER = "ledger"
"""The method that takes a `Request` and gives its `Answer`."""

STATUS = "status"
"""The method that takes `Nothing` and gives the job's `Status`. Whoever asks names the run, which the header in the
store holds; before the first round there is no header, and any name will do."""

CLOCKS = "clocks"
"""The method that takes and gives what a worker asks of the clocks, here with those of all workers of a node."""

STEPS = "steps"
"""The method that takes a `Stepped` and gives `Nothing`."""

SERVERS = "parameter_servers"
"""The method that takes a `NodeServers` and gives `Nothing`."""

SERVERS_EVERY = 2.0
"""Seconds from one word of them to the next."""

ASKING = PATIENCE + 1.0
"""Seconds for one answer: a master that lives says within PATIENCE why there is none yet."""


@dataclass(eq=False, repr=False)
class Link:
    """Asks whoever leads the job.

    Args:
        store, keys: where the job is.
        here: the ledgers of this agent's own master, while it is the job's.
        caller: who this agent is.
        security: what the master's agent must have and speak.
        stepped: has this agent's own master know how far rank 0 is; False while it is not the job's.
        clocks: has this agent's own master answer for the workers' clocks, while it is the job's.
        known: what this agent knows of the job's rounds; nothing where it has no workers.
        served: as `stepped`, of this node's parameter servers.
        say: prints one line for a person.

    Attributes:
        trouble: why the last attempt came to nothing, in words.
    """

    _store: Store
    _keys: Keys
    _here: Callable[[], Ledgers | None]
    _caller: Callable[[], Caller]
    _security: Security = Security()
    _stepped: Callable[[Stepped], bool] = lambda _: False
    _known: Callable[[], KnownRound] = KnownRound
    _clocks: Callable[[Caller, Call], Awaitable[Back]] | None = None
    _served: Callable[[NodeServers], bool] = lambda _: False
    _say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[Connection | str] | None = None
        self._tasks = Tasks()
        self._reports: ClockReports | None = None
        self.trouble = ""

    async def ask(self, request: Request) -> Answer:
        """Asks until there is an answer; the caller limits how long. Raises TooLong."""

        async def attempt() -> Answer:
            header, mine = self._known().header, self._known().assignment
            on = mine is not None and 0 < mine.since <= request.round  # the worker continues in that later round
            if header and header.number > request.round and not on:
                return Answer("stale", f"round {request.round} is over: the job is in round {header.number}")
            if ledgers := self._here():
                return await ledgers.answer(request, self._caller())
            return await self._ask_master(LEDGER, request, Answer)

        return await self._try_again(attempt)

    async def _try_again(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Until whoever leads by then has answered."""
        pauses = iter(PAUSES)
        while True:
            try:
                return await attempt()
            except (Deposed, RpcError, OSError) as error:
                self.trouble = str(error)
            await asyncio.sleep(next(pauses, PAUSES[-1]))

    async def tell_clocks(self, told: Call) -> Back:
        """Passes on what a worker says of its clock, with all that others here have said; as `ask`."""
        if self._reports is None:
            from .clock_reports import ClockReports  # here, because few jobs have clocks

            self._reports = ClockReports(self._ask_clocks, self._tasks, self._say)
        return await self._reports.answer(told)

    async def _ask_clocks(self, told: Call) -> Back:
        async def attempt() -> Back:
            if self._here() and self._clocks:
                return await self._clocks(self._caller(), told)
            return await self._ask_master(CLOCKS, told, Back)

        return await self._try_again(attempt)

    async def status(self) -> Status:
        """The job's. Raises RpcError or OSError where nobody tells it now."""
        return await self._ask_master(STATUS, Nothing(), Status)

    async def stepped(self, told: Stepped) -> None:
        """Tells how far rank 0 is; where nobody hears it now, the next word comes in a second."""
        if not self._stepped(told):
            await self._tell_master(STEPS, told)

    async def _tell_master(self, method: str, told: object) -> None:
        """Once; where nobody hears it now, it is lost."""
        with contextlib.suppress(RpcError, OSError):
            await self._ask_master(method, told, Nothing)

    async def tell_servers(self, describe: Callable[[], NodeServers]) -> None:
        """Tells of this node's parameter servers again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(SERVERS_EVERY)
            if not self._served(told := describe()):
                await self._tell_master(SERVERS, told)

    async def look(self, node: str, wanted: Look) -> NodeEvidence:
        """What the agent of a node sees of its workers.

        Raises RpcError, StoreError or OSError where it tells nothing.
        """
        member = await read_member(self._store, self._keys, node)
        from ..rendezvous.rpc.client import connect_to_node  # here, because a job of one node has no other agent

        address, caller = member.agent_address, self._caller()
        async with connect_to_node(address, member.incarnation, node, caller, self._security) as connection:
            return await connection.ask(EVIDENCE, wanted, NodeEvidence, SECONDS)

    async def close(self) -> None:
        """Hangs up; nobody may be asking any more."""
        await self._tasks.close()
        if self._dialling:
            await cancel(self._dialling)
        if self._connection:
            await self._connection.close()

    async def _ask_master(self, method: str, request: object, answer: type[T]) -> T:
        """Whoever leads the job, once. Raises RpcError, OSError, TooLong."""
        connection = await self._connected()
        try:
            return await connection.ask(method, request, answer, ASKING)
        except RpcError:
            connection.hang_up()  # whoever leads now is to be found out anew
            raise

    async def _connected(self) -> "Connection":
        """Raises ConnectionError."""
        if self._connection and not self._connection.lost and self._connection.caller == self._caller():
            return self._connection
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._dial(), name="dial the master")
            self._dialling.add_done_callback(self._dialled)
        dialled = await asyncio.shield(self._dialling)
        if isinstance(dialled, str):
            raise ConnectionError(dialled)
        return dialled

    def _dialled(self, _: object) -> None:
        self._dialling = None

    async def _dial(self) -> "Connection | str":
        """A connection to the master, or why there is none."""
        try:
            found = await self._store.get(self._keys.leader)
            if found is None:
                return "the job has no master"
            leader = decode(Leader, found.value)
            if not leader.agent_address:
                return f"the master on node {leader.node} accepts no connections"
            tls = self._security.client
            reader, writer = await failure_detector.dial(leader.agent_address, leader.incarnation, tls)
        except (StoreError, Malformed, OSError) as error:
            return f"cannot reach the job's master: {error}"
        from ..rendezvous.rpc.client import Connection  # here, as above

        if self._connection:
            await self._connection.close()
        peer = f"the job's master on node {leader.node}"
        self._connection = Connection(reader, writer, peer, self._caller())
        return self._connection


async def answer_clocks(leads: "Candidate", caller: Caller, told: Call) -> Back:
    """What this node's master says of the workers' clocks. Raises Deposed where it does not lead their run."""
    from ..master.data.worker_clocks import NodeClocks  # here, because few jobs have clocks

    try:
        node = decode(NodeClocks, told.told.encode())
    except Malformed as error:
        return Back(text=f"clocks that cannot be read: {error}")
    return Back(told=encode(await leads.master_of(caller.run).clocks.answer(node, caller)).decode())


def methods(leads: "Candidate") -> Methods:
    """What others may ask this agent, which answers while its own master leads their run of the job."""

    async def ask_ledger(caller: Caller, request: Request) -> Answer:
        return await leads.master_of(caller.run).ledgers.answer(request, caller)

    async def ask_status(caller: Caller, _: Nothing) -> Status:
        found = leads.status
        if found is None or (caller.run != found.run and found.state != "gathering"):
            raise Deposed("this node's agent does not lead that run of the job")
        return found

    async def ask_clocks(caller: Caller, told: Call) -> Back:
        return await answer_clocks(leads, caller, told)

    async def tell_steps(caller: Caller, told: Stepped) -> Nothing:
        leads.master_of(caller.run).stepped(told)
        return Nothing()

    async def tell_servers(caller: Caller, told: NodeServers) -> Nothing:
        leads.master_of(caller.run).served(told)
        return Nothing()

    return {
        LEDGER: Method(Request, ask_ledger),
        CLOCKS: Method(Call, ask_clocks),
        STATUS: Method(Nothing, ask_status),
        STEPS: Method(Stepped, tell_steps),
        SERVERS: Method(NodeServers, tell_servers),
    }
