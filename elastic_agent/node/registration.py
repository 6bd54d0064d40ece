"""This node's own key in the store: it registers, keeps its lease, reports, registers again where it is lost, and goes.

What the key means, and which transactions keep it right, is in `rendezvous/membership.py`; here is when they are made.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ...rendezvous import election, membership
from ...rendezvous.base.errors import (
    AlreadyOver,
    Compacted,
    LeaseLost,
    Refused,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    Unreadable,
)
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.tasks import Tasks
from ...rendezvous.failure_detector import AgentListener
from ...rendezvous.keys import Keys
from ...rendezvous.member import Member
from ...rendezvous.membership import Registration
from ...rendezvous.store.contract import Store
from ...rendezvous.store.waits import Waits
from ..agent_trace import Recorder
from ..candidate import REFUSED_PAUSE, Candidate
from ..inbox import Inbox
from ..logs.output import Output
from ..machine import plan
from ..machine.node_events import (
    EndMissed,
    KeyLapsed,
    KeyLost,
    KeyResumed,
    KeyWritten,
    Orphaned,
    RefusedForGood,
    Registering,
    ReportWritten,
)
from ..machine.node_state import NodeState
from ..setup import Setup
from .round_follower import NEWS, RoundFollower

T = TypeVar("T")

REGISTRATION = "this node's registration"
REPORT = "this node's report"
"""What may wait for the store."""

FAREWELL_SECONDS = 5.0
"""That a node takes at most to tell the store that it goes; then its lease does it."""


@dataclass(eq=False, repr=False)
class NodeRegistration:
    """Registers this node, and keeps what the store holds about it equal to what `plan.report` says.

    Args:
        setup: what the agent is started with.
        store, keys: where the job is.
        inbox: what the agent knows.
        reporter: where lines for a person go.
        waits: what waits for the store on this node.
        trace: where it is recorded.
        tasks: of the agent, those that keep a registration among them.
        listener: what other agents reach this one by; each registration is another incarnation.
        rounds: reads the header again when the node has registered.
        ports: those that the node offers at the moment: to meet at, and those of its workers.
        look: has the agent look at its workers and its store; what it knows then.

    Attributes:
        registered: set while the node is registered, as far as it knows.
    """

    _setup: Setup
    _store: Store
    _keys: Keys
    _inbox: Inbox
    _reporter: Output
    _waits: Waits
    _trace: Recorder
    _tasks: Tasks
    _listener: AgentListener
    _rounds: RoundFollower
    _ports: Callable[[], tuple[tuple[int, ...], tuple[int, ...]]]
    _look: Callable[[], NodeState]

    def __post_init__(self) -> None:
        self._lease_task: asyncio.Task[None] | None = None
        self._own_key_task: asyncio.Task[None] | None = None
        self.registered = asyncio.Event()
        self._unconfirmed = 0  # the lease under which it is about to register
        self._leaving = False  # what happens to its key from here on is its own doing

    async def wait(self) -> Registration:
        """The node's registration, as soon as there is one whose lease lives."""
        while True:
            key = self._inbox.state.key
            if key.registration and key.registered:
                return key.registration
            await self.registered.wait()

    async def register(self) -> None:
        """Becomes a member under a new lease and a new incarnation; or the agent knows why it does not.

        Raises Unreadable or StoreRefused where it has not been in the job before: whoever started it is told at once.
        """
        setup, began = self._setup, self._inbox.now()
        self._tasks.end(self._lease_task, self._own_key_task)
        try:
            member = await self._next_life()
            if member is None:
                return
            registering = membership.register(self._store, self._keys, member, self._unconfirmed)
            registration = await self._while_kept(self._unconfirmed, registering)
        except (Refused, StoreUnavailable, LeaseLost, StoreRefused) as error:
            await self._not_registered(error, began)
            return
        self._trace.registered()
        self._is_registered(KeyWritten(registration, member.report))
        if setup.bind is not None:
            self._reporter.say(f"this node is registered as {registration.member.node}")
        # A round may have been opened since, and its header may have come before this registration.
        await self._rounds.look_again(setup.store_patience)

    async def _next_life(self) -> Member | None:
        """What it registers as, under a lease of its own; None where it has no part in the job any more."""
        setup, known = self._setup, self._inbox.state.known
        found = await membership.read_header(self._store, self._keys)
        own_run = known.own_run if self._inbox.state.key.came else None
        missed = await membership.refuse_if_over(self._store, self._keys, own_run, setup.known_runs)
        if found and found[0].final and found[0].run == known.own_run:
            missed = found[0]
        if missed:
            self._inbox.note(EndMissed(missed))
            return None
        if known.own_run and (found is None or found[0].final):
            why = "the run ended while this node was not a member, and the store no longer holds its result: see the "
            self._inbox.note(Orphaned(f"{why}logs of the other nodes"))
            return None
        self._unconfirmed = await self._store.grant(setup.lease_ttl)
        incarnation = secrets.token_hex(8)
        ports, worker_ports = self._ports()
        await self._listener.greet_as(incarnation)
        self._inbox.note(Registering(stale=found[0].run if found and found[0].final else ""))
        return Member(
            node=setup.workers.node,
            incarnation=incarnation,
            host=setup.host,
            agent_address=self._listener.address,
            nproc=setup.nproc,
            ports=ports,
            worker_ports=worker_ports,
            fingerprint=setup.terms.fingerprint,
            role=setup.workers.role,
            node_role=setup.node_role,
            topology=setup.topology,
            node_rank=setup.node_rank,
            run=self._inbox.state.known.own_run,
        )

    async def _not_registered(self, error: StoreError | Refused, began: float) -> None:
        came, lease = self._inbox.state.key.came, self._unconfirmed
        if isinstance(error, Unreadable) and not self._inbox.state.known.own_run:
            raise error  # it comes to a job of another version
        if isinstance(error, StoreRefused) and not came:
            raise error
        if lease:
            # A key that was written and not confirmed must not stay as somebody who never comes.
            with contextlib.suppress(StoreError):
                await self._store.revoke(lease)
            self._unconfirmed = 0
        if isinstance(error, AlreadyOver) and lease and came:
            return  # it may be its own run that has just succeeded: it looks again
        if isinstance(error, Refused):
            self._inbox.note(RefusedForGood(str(error)))
            return
        await self._try_later(REGISTRATION, error, began)

    async def resume(self) -> None:
        """Takes up the registration whose lease has ended, or finds that the job has gone on without this node."""
        began, registration = self._inbox.now(), self._inbox.state.key.registration
        assert registration is not None, "a lease that has ended was somebody's"
        self._tasks.end(self._lease_task, self._own_key_task)
        try:
            lease = self._unconfirmed = self._unconfirmed or await self._store.grant(self._setup.lease_ttl)
            if why := plan.replaced(self._look(), self._inbox.now()):
                await self._give_up(registration, why)
                return
            known = self._inbox.state.known.revision
            resuming = membership.resume(self._store, self._keys, registration, lease, known)
            result = await self._while_kept(lease, resuming)
            if result == "moved":
                found = await membership.read_header(self._store, self._keys)
                if found is None:
                    await self._give_up(registration, "its lease expired, and the store holds no round of the job")
                else:
                    await self._rounds.take(*found)
                return
            if result == "out":
                word = await membership.read_eviction(self._store, self._keys, registration.member.incarnation)
                self._inbox.note(RefusedForGood(str(word.reason) if word and word.final else ""))
                await self._give_up(registration, str(word.reason) if word else "another node uses its name")
                return
        except (StoreUnavailable, LeaseLost, StoreRefused) as error:
            # Workers that run need no store until membership changes.
            if isinstance(error, LeaseLost):
                self._unconfirmed = 0
            await self._try_later(REGISTRATION, error, began)
            return
        self._trace.registered()
        self._reporter.say("this node is registered again; its workers kept running")
        self._is_registered(KeyResumed(result))

    async def report(self) -> None:
        """Keeps the store's report about this node equal to what `plan.report` says."""
        while not self._leaving:
            heard = self._inbox.count
            state = self._look()
            registration = state.key.registration if state.key.registered else None
            wanted, (ports, worker_ports) = plan.report(state, self._inbox.now()), self._ports()
            held = (registration.member.ports, registration.member.worker_ports) if registration else None
            if registration is None or (wanted == state.key.told and held == (ports, worker_ports)):
                self._waits.done(REPORT)
                await self._inbox.news(heard)
                continue
            begun = self._inbox.now()
            try:
                updated = await membership.report(self._store, self._keys, registration, wanted, ports, worker_ports)
            except LeaseLost:
                updated = None
            except (StoreUnavailable, StoreRefused) as error:
                await self._try_later(REPORT, error, begun)
                continue
            if self._inbox.state.key.registration is not registration:
                continue
            if updated is None:
                await self._evicted(registration)
                continue
            self._trace.reported(wanted.state, begun)
            self._inbox.post(ReportWritten(updated, wanted))

    async def leave(self, candidate: Candidate, leading: asyncio.Task[None], close_seconds: float) -> None:
        """Takes this node out of the store; whatever does not work within the deadline its lease does.

        A master resigns before its node goes, so that the others need not wait for its lease. Where the job is over, it
        stays until the others have gone and the job's keys are removed.

        Args:
            leading: the task that campaigns, and is the master while elected.
            close_seconds: that a master of a job that is over waits for the other nodes.
        """
        registration = self._inbox.state.key.registration
        if registration is None:
            if self._unconfirmed:  # told to go while it registered: its key may be there, and somebody wait for it
                with contextlib.suppress(TimeoutError, StoreError):
                    async with asyncio.timeout(FAREWELL_SECONDS):
                        await self._store.revoke(self._unconfirmed)
            return
        self._leaving = True
        over = self._inbox.state.known.over or candidate.cleaning_up
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                leadership = candidate.leadership
                if not over and leadership:
                    leading.cancel()
                    await asyncio.wait({leading})
                    await election.resign(self._store, leadership)
                await membership.deregister(self._store, registration)
            if over and candidate.leadership:
                async with asyncio.timeout(close_seconds + FAREWELL_SECONDS):
                    await asyncio.wait({leading})
            async with asyncio.timeout(FAREWELL_SECONDS):
                self._tasks.end(self._lease_task)
                for lease in filter(None, (registration.lease, self._unconfirmed)):
                    await self._store.revoke(lease)
        except (TimeoutError, StoreError) as error:
            words = str(error) or f"no answer within {FAREWELL_SECONDS:g} s"
            self._reporter.say(f"this node could not deregister ({words}); its lease expires by itself")

    async def _try_later(self, what: str, error: StoreError, began: float) -> None:
        self._waits.failed(what, error, began)
        await asyncio.sleep(REFUSED_PAUSE if isinstance(error, StoreRefused) else 0.2)

    async def _while_kept(self, lease: int, work: Coroutine[Any, Any, T]) -> T:
        """Does `work`, and renews the lease where it takes long: a slow store must not end it before it is used."""

        async def keep() -> None:
            with contextlib.suppress(StoreError):  # `work` hears of it, too
                await asyncio.sleep(self._setup.lease_ttl / 3)
                await self._store.keep_alive(lease, self._setup.lease_ttl)

        kept = asyncio.create_task(keep(), name="lease, not yet used")
        try:
            return await work
        finally:
            kept.cancel()
            await asyncio.wait({kept})

    async def _give_up(self, registration: Registration, why: str) -> None:
        """The registration whose lease has ended is not taken up again."""
        lease, self._unconfirmed = self._unconfirmed, 0
        self._lose(registration, why)
        if lease:
            with contextlib.suppress(StoreError):
                await self._store.revoke(lease)

    def _is_registered(self, event: KeyWritten | KeyResumed) -> None:
        registration = event.registration
        self._inbox.note(event)
        self._unconfirmed = 0
        self._waits.done(REGISTRATION)
        self._lease_task = self._tasks.begin(self._keep_lease(registration), "lease")
        self._own_key_task = self._tasks.begin(self._watch_own_key(registration), "own key")
        self.registered.set()

    async def _keep_lease(self, registration: Registration) -> None:
        try:
            await self._store.keep_alive(registration.lease, self._setup.lease_ttl)
        except LeaseLost:
            self._lapse(registration)

    async def _watch_own_key(self, registration: Registration) -> None:
        revision = registration.revision + 1
        while True:
            try:
                async for events in self._store.watch(registration.key, revision):
                    revision = events[-1].kv.mod_revision + 1
                    if any(event.kind == "delete" for event in events):
                        await self._evicted(registration)
                        return
            except (Compacted, StoreUnavailable):
                listing = await self._waits.until_answered(NEWS, partial(self._store.list, registration.key))
                held = [item for item in listing.items if item.key == registration.key]
                if not held or held[0].create_revision != registration.revision:
                    await self._evicted(registration)
                    return
                revision = listing.revision + 1

    async def _evicted(self, registration: Registration) -> None:
        word = None
        with contextlib.suppress(StoreUnavailable):
            word = await membership.read_eviction(self._store, self._keys, registration.member.incarnation)
        if word is None:
            self._lapse(registration)
            return
        if word.final:
            self._inbox.note(RefusedForGood(str(word.reason)))
        self._lose(registration, str(word.reason))

    def _lapse(self, registration: Registration) -> None:
        """The node's key is gone, and nobody has said that it was evicted."""
        if not self._is_current(registration) or self._inbox.state.key.lapsed:
            return
        self._inbox.post(KeyLapsed())
        self.registered.clear()
        self._reporter.say(
            "this node's lease expired; it registers again, and its workers keep running unless the job has replaced "
            "them"
        )

    def _lose(self, registration: Registration, why: str) -> None:
        if not self._is_current(registration):
            return
        key = self._inbox.post(KeyLost()).key
        self._trace.lost(why)
        self.registered.clear()
        if not key.refusal:
            self._reporter.say(f"this node is no longer a member of the job: {why}; it registers again")

    def _is_current(self, registration: Registration) -> bool:
        """It is what the node goes by, and its key is not gone because the node takes it away."""
        current = self._inbox.state.key.registration
        return current is not None and current.revision == registration.revision and not self._leaving
