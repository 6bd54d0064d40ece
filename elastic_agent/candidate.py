"""A process's part in the election: it campaigns, watches whoever leads, and runs the master while it is elected."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..master.data.ledger_service import Ledgers
from ..master.diagnosis.examination import Here
from ..master.machine.controller import Terms
from ..master.machine.memory import Memory
from ..master.machine.pace import Stepped
from ..master.machine.parameter_servers import NodeServers
from ..master.master import LEADING, Master
from ..master.publish import Publisher
from ..master.status import Status
from ..rendezvous import election, failure_detector
from ..rendezvous.base.cancel import cancel
from ..rendezvous.base.errors import (
    Compacted,
    Deposed,
    LeaseLost,
    MaybeApplied,
    OtherSecret,
    StoreRefused,
    StoreUnavailable,
)
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.header import Header, Leader
from ..rendezvous.host.trace_file import Trace
from ..rendezvous.identity.secret import OTHER_SECRET, runs_with_another
from ..rendezvous.keys import Keys
from ..rendezvous.membership import Registration
from ..rendezvous.node_reasons import LossReason
from ..rendezvous.rpc.envelope import Security
from ..rendezvous.store.contract import KeyValue, Store
from ..rendezvous.store.seal import unreadable
from ..rendezvous.store.waits import Waits
from ..rendezvous.wire.values import Malformed, decode

if TYPE_CHECKING:
    from ..master.beside import BesideMaster
    from ..master.history import History

REFUSED_PAUSE = 1.0
"""Seconds until the next attempt where the store says no (no space left, say): somebody has to mend that."""

MOST_DEAD = 100
"""Dead masters whose proof is kept: each was in the round that the next master takes over, or in one long before."""


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Who stands for election, and the lease that its leadership hangs on."""

    me: Leader
    lease: int

    @classmethod
    def of(cls, registration: Registration) -> "Candidacy":
        """A registered node's."""
        member = registration.member
        return cls(Leader(member.node, member.incarnation, member.agent_address), registration.lease)


@dataclass(eq=False, repr=False)
class Candidate:
    """Takes part in the election for as long as `run` runs.

    Args:
        store, keys: where the job is.
        terms: what the master needs.
        say: prints one line for a person.
        waits: what waits for the store on this node.
        trace: where the master records what it does; None: nowhere.
        lease_ttl: seconds that a node's lease lives.
        security: what other agents' listeners ask for.
        here: what the agent in this process tells of its workers; None: there is no agent.
        beside: what works in this process while the job goes on under this node's master.

    Attributes:
        leadership: held while this node's master runs, else None.
    """

    _store: Store
    _keys: Keys
    _terms: Terms
    _say: Callable[[str], None]
    _waits: Waits
    _trace: Trace | None = None
    _lease_ttl: int = 5
    _security: Security = Security()
    _here: Here | None = None
    _beside: "Sequence[BesideMaster]" = ()

    def __post_init__(self) -> None:
        self._watch = partial(failure_detector.watch_until_dead, security=self._security)
        self._hear = partial(failure_detector.watch_until_heard, security=self._security)
        self._now = asyncio.get_running_loop().time
        self._memory = Memory()
        self._belongs = False  # it has led this job, or has known a leader of it
        self.leadership: election.Leadership | None = None
        self._master: Master | None = None

    @property
    def cleaning_up(self) -> bool:
        """This node's master is about to end the job or has done so, and nobody else will remove the job's keys."""
        return self._master is not None and self._master.over

    @property
    def ledgers(self) -> Ledgers | None:
        """Those of this node's master, while there is one."""
        return self._master.ledgers if self._master else None

    def master_of(self, run: str) -> Master:
        """This node's, while it leads that run of the job. Raises Deposed."""
        if self._master is None or not self._master.ledgers.serves(run):
            raise Deposed("this node's agent does not lead that run of the job")
        return self._master

    @property
    def status(self) -> Status | None:
        """The job's, while this node's master leads it."""
        return self._master.status if self._master else None

    def stepped(self, told: Stepped) -> bool:
        """Has this node's master know how far rank 0 is; False where it does not lead the job."""
        if self._master is None:
            return False
        self._master.stepped(told)
        return True

    def served(self, told: NodeServers) -> bool:
        """Has this node's master know of a node's parameter servers; False where it does not lead the job."""
        if self._master is None:
            return False
        self._master.served(told)
        return True

    async def run(
        self,
        stand: Callable[[], Awaitable[Candidacy]],
        stale: Callable[[], str],
        over: Callable[[], bool] = lambda: False,
    ) -> Header | None:
        """Campaigns as whatever `stand` returns; ends when the job is over and its keys are gone, with the last header.

        Its own master has ended the job; or another has, and this process, which had not heard of it, has nobody to
        lead any more.

        Args:
            stand: waits until this process may be elected: an agent, until its node is registered.
            stale: names the run that was over when this node came: to clean up after that one ends nothing of its own.
            over: this node has read the end of its own run, so it must not lead another.

        Raises OtherSecret where this process comes to a job of nodes with another secret.
        """
        deposed_at = -election.DEPOSE_PAUSE
        while not over():
            candidacy = await stand()
            self._memory.began = min(self._memory.began, self._now())
            try:
                won = await self._campaign(candidacy, stale())
                if isinstance(won, Header):
                    return won
                if isinstance(won, election.Held):
                    self._waits.done(LEADING)  # by another
                if isinstance(won, election.Leadership):
                    ended = await self._be_master(won, candidacy.lease)
                    if ended is not None and ended.run != stale():
                        return ended
                elif (
                    await self._follow(won)
                    and self._now() - deposed_at >= election.DEPOSE_PAUSE
                    and await self._depose(won.key, candidacy.lease)
                ):
                    deposed_at = self._now()
            except StoreRefused as error:
                self._waits.failed(LEADING, error)
                await asyncio.sleep(REFUSED_PAUSE)
            except (StoreUnavailable, LeaseLost, Compacted) as error:
                if isinstance(error, StoreUnavailable):
                    self._waits.failed(LEADING, error)
                await asyncio.sleep(0.05)  # the store paces its own attempts; this only yields to the other tasks
        return None

    async def _campaign(self, candidacy: Candidacy, stale: str) -> election.Leadership | election.Held | Header:
        """Leads, or follows; or there is nothing to lead any more, because the job has succeeded with this header."""
        campaign = partial(election.campaign, self._store, self._keys, candidacy.me, candidacy.lease)
        while isinstance(won := await campaign(), election.Succeeded):
            found = await self._store.get(self._keys.round)
            if won.end and won.end.run != stale and found is None:
                return won.end
            # Somebody has to remove the job's keys; where another has done so meanwhile, this process asks again.
            won = await campaign(after_success=found.mod_revision if found else 0)
            if not isinstance(won, election.Succeeded):
                break
        return won

    async def _depose(self, held: KeyValue, lease: int) -> bool:
        """Whether it was this node that removed the leader (or may have); it may have left in order before."""
        leader, doubt = decode(Leader, held.value), False
        why = self._memory.dead[leader.incarnation]

        async def depose() -> bool:
            nonlocal doubt
            try:
                return await election.depose(self._store, self._keys, held, leader, why, lease) or doubt
            except MaybeApplied:
                doubt = True
                raise

        # The store is away in the usual case where the dead machine ran a member of it. The evidence is not had twice.
        return await self._waits.until_answered(f"the removal of the dead master on node {leader.node}", depose)

    async def _be_master(self, leadership: election.Leadership, lease: int) -> Header | None:
        """Runs the master; the final header when the job is over, None where the leadership was lost."""
        publisher = Publisher(self._store, self._keys, leadership, lease, 0, words=self._memory.evicted)
        history = self._history(leadership)
        master = Master(
            self._store,
            self._keys,
            publisher,
            self._terms,
            say=self._say,
            now=self._now,
            trace=self._trace,
            lease_ttl=self._lease_ttl,
            memory=self._memory,
            waits=self._waits,
            watch=self._watch,
            hear=self._hear,
            history=history,
            here=self._here,
            security=self._security,
            beside=self._beside,
        )
        self.leadership, self._master = leadership, master
        try:
            return await master.run()
        except OtherSecret:
            await election.resign(self._store, leadership)
            raise
        except Deposed as error:
            self._say(f"the job's master no longer runs here: {error}")
            self._belongs = True
            return None
        finally:
            self.leadership = self._master = None
            if history:
                history.close()

    def _history(self, leadership: election.Leadership) -> "History | None":
        """Beside the trace, where there is one: what the master's controller was told, and what it decided."""
        if self._trace is None or self._trace.file is None:
            return None
        from ..master.history import History  # here, because few jobs have a trace

        return History(Path(f"{self._trace.file}.{leadership.revision}.history"), self._say)

    async def _follow(self, held: election.Held) -> bool:
        """Waits until the leader key changes (False), or its holder is proven dead (True). Raises OtherSecret."""
        try:
            leader = decode(Leader, held.key.value)
        except Malformed:
            other = unreadable(held.key.value)
            if other and not self._belongs:
                raise OtherSecret(runs_with_another(self._keys.job)) from None
            why = f"its nodes have {OTHER_SECRET}" if other else "this version cannot read which"
            self._say(f"another node leads the job, and {why}; waiting until that changes ({held.key.key})")
            await self._leader_changed(held)
            return False
        self._belongs = True
        changed = asyncio.create_task(self._leader_changed(held))
        dead = asyncio.create_task(self._dead(leader))
        try:
            await asyncio.wait({changed, dead}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                changed.result()
                return False
            self._memory.dead[leader.incarnation] = dead.result()
            if len(self._memory.dead) > MOST_DEAD:
                del self._memory.dead[next(iter(self._memory.dead))]
            self._say(f"the master's node {leader.node} is lost: {dead.result()}; electing a new master")
            return True
        finally:
            await cancel(changed, dead)

    async def _leader_changed(self, held: election.Held) -> None:
        async for _ in self._store.watch(held.key.key, held.revision + 1):
            return

    async def _dead(self, leader: Leader) -> LossReason:
        if not leader.agent_address:
            await asyncio.get_running_loop().create_future()
        return await self._watch(leader.agent_address, leader.incarnation)
