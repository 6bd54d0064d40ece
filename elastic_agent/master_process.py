"""A process without workers that takes part in the election, and leads the job while it is elected.

It is no member of the job: no round has a rank for it, and nobody waits for it. It and the agents' own candidates are
equal in the election: whoever comes first leads, and one of the others takes over when that one is lost.
"""

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..master.diagnosis.examination import REPLACE
from ..master.diagnosis.requests import Done, Replacement
from ..master.machine.controller import Terms
from ..master.status import Status
from ..rendezvous import election, failure_detector, membership
from ..rendezvous.base.cancel import cancel
from ..rendezvous.base.errors import LeaseLost, OtherSecret, Refused, StoreError
from ..rendezvous.base.frozen import dataclass, field
from ..rendezvous.header import Header, Leader
from ..rendezvous.host.trace_file import Trace
from ..rendezvous.keys import Keys
from ..rendezvous.member import Member, describe_difference
from ..rendezvous.rpc.client import connect_to_node
from ..rendezvous.rpc.envelope import Caller, RpcError, Security
from ..rendezvous.store.contract import KeyValue, Store
from ..rendezvous.store.waits import Waits
from ..rendezvous.wire.values import decode_or_none
from . import master_client
from .candidate import Candidacy, Candidate
from .machine import plan
from .node.preemption import heed_no_more

if TYPE_CHECKING:
    from ..master.beside import BesideMaster

FAREWELL_SECONDS = 5.0
"""Seconds that it takes at most to give the leadership up; then its lease does it."""

ASK_SECONDS = 5.0
"""Seconds that a node has to answer that it leaves."""

HEADER = "reading the state of the job"
"""What may wait for the store."""

OBSERVED = 1.0
"""Seconds between two looks at the job's status, for whoever wants to know it."""


@dataclass(frozen=True, slots=True)
class MasterSetup:
    """What it is started with.

    Attributes:
        job: the job's id.
        name: what others call it in their lines.
        host: what peers call this machine.
        bind: the address that its listener binds; "" is every interface.
        terms: what the master needs.
        lease_ttl: seconds until it is taken for lost when it is silent.
        signals: each of them ends it in order.
        security: what the job's agents must have and speak when they ask each other.
        known_runs, beside: as in `Setup`.
    """

    job: str
    name: str
    host: str
    bind: str
    terms: Terms
    lease_ttl: int = 5
    signals: tuple[signal.Signals, ...] = ()
    security: Security = field(default_factory=Security)
    known_runs: frozenset[str] = frozenset()
    beside: "tuple[BesideMaster, ...]" = ()


class MasterProcess:
    """Takes part in the election until the job is over, or it is told to end.

    Args:
        setup: what it is started with.
        store: the job's store; the caller closes it.
        say: prints one line for a person.
        trace: where the master records what it does; None: nowhere.
        observe: is told of the job's status again and again, whoever leads, for a person; None: nobody wants to know.
        listen: makes the socket of its listener; None: the operating system's.

    Attributes:
        end: the header with which the job's run has ended; None while it goes on, or nobody knows.
        known: the newest header that it has heard of; None before the first.
    """

    def __init__(
        self,
        setup: MasterSetup,
        store: Store,
        say: Callable[[str], None],
        trace: Trace | None = None,
        observe: Callable[[Status], None] | None = None,
        listen: Callable[[str], socket.socket] | None = None,
    ) -> None:
        self._setup = setup
        self._store = store
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._keys = Keys(setup.job)
        self._waits = Waits(say, self._loop.time)
        self._candidate = Candidate(
            store,
            self._keys,
            setup.terms,
            say,
            self._waits,
            trace,
            setup.lease_ttl,
            setup.security,
            None,
            setup.beside,
        )
        self._listener = failure_detector.AgentListener(
            secrets.token_hex(8),
            listen,
            methods=master_client.methods(self._candidate),
            security=setup.security,
            say=say,
        )
        self._observe = observe
        self.end: Header | None = None
        self.known: Header | None = None
        self._link = master_client.Link(
            store,
            self._keys,
            lambda: None,
            lambda: Caller(self.known.run if self.known else "", setup.name, self._listener.incarnation),
            setup.security,
        )
        self._stale = ""
        self._header: Header | None = None
        self._told: asyncio.Future[int] = self._loop.create_future()

    async def run(self) -> tuple[int, str]:
        """The exit code, and why it ends, in words. Raises OSError where it cannot listen, StoreError."""
        for number in self._setup.signals:
            self._loop.add_signal_handler(number, self._tell, number)
        try:
            try:
                await membership.refuse_if_over(self._store, self._keys, known=self._setup.known_runs)
            except Refused as error:
                return plan.REFUSED, str(error)
            if found := await membership.read_header(self._store, self._keys):
                header = found[0]
                if header.final:
                    self._stale = header.run
                elif difference := describe_difference(self._setup.terms.fingerprint, header.fingerprint):
                    # As the leader it would decide by its own flags on a job that was started with others.
                    return plan.REFUSED, (
                        f"job {self._setup.job!r} was started with another command or source than this process: "
                        f"{difference}. Start it as the nodes were started, or give it another --rdzv-id"
                    )
            await self._listener.start(self._setup.bind, self._setup.host)
            watching = asyncio.create_task(self._watch(), name="header")
            observing = asyncio.create_task(self._keep_observing(), name="status")
            try:
                return await self._take_part(watching)
            except OtherSecret as error:
                return plan.REFUSED, str(error)
            finally:
                await cancel(watching, observing)
                await self._link.close()
                await self._listener.close()
        finally:
            heed_no_more(self._setup.signals)

    async def ask_to_leave(self, round: int, why: str) -> Collection[str]:
        """Has the nodes of a round leave in order, whoever leads: the names of those that do. Raises StoreError."""
        agreed: set[str] = set()

        async def ask_one(member: Member) -> None:
            security, me = self._setup.security, Caller("", self._setup.name, self._listener.incarnation)
            with contextlib.suppress(RpcError, OSError):
                async with connect_to_node(member.agent_address, member.incarnation, member.node, me, security) as node:
                    if (await node.ask(REPLACE, Replacement(round, why), Done, ASK_SECONDS)).done:
                        agreed.add(member.node)

        listing = await self._store.list(self._keys.nodes)
        found = (decode_or_none(Member, each.value) for each in listing.items)
        await asyncio.gather(*(ask_one(member) for member in found if member))
        return agreed

    def _tell(self, number: int) -> None:
        if not self._told.done():
            self._told.set_result(number)

    async def _take_part(self, watching: "asyncio.Task[Header]") -> tuple[int, str]:
        """Campaigns under one lease after the other."""
        while True:
            lease = await self._waits.until_answered("a lease", lambda: self._store.grant(self._setup.lease_ttl))
            await self._listener.greet_as(secrets.token_hex(8))
            me = Leader(self._setup.name, self._listener.incarnation, self._listener.address)
            campaign = asyncio.create_task(self._campaign(Candidacy(me, lease)), name="leadership")
            keeping = asyncio.create_task(self._store.keep_alive(lease, self._setup.lease_ttl), name="lease")
            try:
                await asyncio.wait({campaign, keeping, watching, self._told}, return_when=asyncio.FIRST_COMPLETED)
                if self._told.done():
                    name = signal.Signals(self._told.result()).name
                    return 128 + self._told.result(), f"{name}: this process gives up its part in the election"
                if campaign.done() or watching.done():
                    return await self._ended(campaign, watching)
                self._say("this process's lease expired; it takes part in the election again")
                with contextlib.suppress(LeaseLost):
                    keeping.result()
            finally:
                leadership = self._candidate.leadership
                await cancel(campaign, keeping)
                await self._give_up(leadership, lease)

    async def _campaign(self, candidacy: Candidacy) -> Header | None:
        async def stand() -> Candidacy:
            return candidacy

        return await self._candidate.run(stand, lambda: self._stale, lambda: self._header is not None, self._has_ended)

    async def _has_ended(self) -> bool:
        """The job has succeeded, and its keys were removed before this process heard of it: nobody waits for it."""
        self._header = await membership.refuse_if_over(self._store, self._keys, "") or self._header
        return self._header is not None

    async def _ended(
        self, campaign: "asyncio.Task[Header | None]", watching: "asyncio.Task[Header]"
    ) -> tuple[int, str]:
        """The job is over: where this process leads, it stays until the job's keys are removed."""
        if self._candidate.leadership:
            limit = self._setup.terms.farewell_seconds + FAREWELL_SECONDS
            await asyncio.wait({campaign, self._told}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        header = self.end = (campaign.result() if campaign.done() else None) or self._header or await watching
        return plan.exit_code(header), str(header.reason)

    async def _keep_observing(self) -> None:
        """Has whoever wants to know it know the job's status, while somebody leads."""
        while self._observe:
            with contextlib.suppress(StoreError, RpcError, OSError):  # nobody leads now: what was known last holds
                status = self._candidate.status or await self._link.status()
                if status.run != self._stale:
                    self._observe(status)
            await asyncio.sleep(OBSERVED)

    async def _give_up(self, leadership: election.Leadership | None, lease: int) -> None:
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                if leadership:
                    await election.resign(self._store, leadership)
                await self._store.revoke(lease)
        except (TimeoutError, StoreError):
            pass  # it expires by itself

    async def _watch(self) -> Header:
        """The end of the job's run, as soon as it is published."""
        await self._waits.follow_key(HEADER, self._store, self._keys.round, self._is_end)
        assert self._header is not None, "it was heard"
        return self._header

    async def _is_end(self, found: KeyValue | None) -> bool:
        if found and (header := membership.header_of(found)).run != self._stale:
            self.known = header
            self._header = header if header.final else self._header
        return self._header is not None
