"""The master: under leadership, tells the controller what happens, and carries out what it decides.

It holds nothing that the store does not hold. It begins with what an earlier master has left (`takeover.py`). What to
do is decided by `controller.py`, which is pure; here are the watch of the members' keys, the deadlines, and the writes
(`publish.py`). `node_watch.py` waits for proofs of death.
"""

import asyncio
import contextlib
import dataclasses
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ..rendezvous import failure_detector
from ..rendezvous.base.cancel import cancel
from ..rendezvous.base.errors import Compacted, Deposed
from ..rendezvous.header import Header
from ..rendezvous.host.trace_file import Trace
from ..rendezvous.keys import Keys
from ..rendezvous.member import Member
from ..rendezvous.node_reasons import LossReason
from ..rendezvous.rpc.envelope import Security
from ..rendezvous.store.contract import KeyValue, Store
from ..rendezvous.store.seal import unreadable
from ..rendezvous.store.waits import Waits
from ..rendezvous.time_split import SplitUntil
from ..rendezvous.wire.values import decode_or_none
from . import takeover
from .data.current_round import Current
from .data.ledger_service import Ledgers
from .diagnosis.examination import Examination, Here
from .diagnosis.findings import Finding
from .machine import effects, events
from .machine.controller import Controller, Terms
from .machine.effects import Effect
from .machine.events import Event
from .machine.memory import Memory
from .machine.pace import Pace, Stepped
from .machine.parameter_servers import NodeServers, ServersSeen
from .machine.targets import Targets
from .node_watch import NodeWatch
from .publish import Publisher
from .status import Status

if TYPE_CHECKING:
    from .beside import BesideMaster
    from .data.clock_service import ClockService
    from .history import History
    from .resources.plan_keeper import PlanKeeper

ROW = "master"
"""Of the trace."""

LEADING = "the job's master"
"""What may wait for the store."""

LONGEST_PAUSE = 1800.0
"""Seconds between two comparisons of the ranks of a round."""

A_TURN = 32
"""Events, or members, that are looked at before the loop's other tasks have their turn: this loop renews the lease, and
a thousand nodes may have news at once."""

LONG_LOOK, LONGEST_GATHERING = 0.001, 0.1
"""Seconds. A look at all members that takes longer than the one is followed by as long a time in which news is only
gathered, up to the other: else a thousand nodes that report one by one cost a thousand looks at a thousand nodes."""


class Master:
    """Runs one leadership until the job is over or the leadership is lost.

    Args:
        store, keys, publisher: where the job is.
        terms: what the job was started with.
        say: prints one line for a person.
        now: the clock, seconds (`loop.time`); all of the master's times are on it.
        memory: what this node knows from before.
        lease_ttl: seconds that a node's lease lives.
        waits: what waits for the store on this node.
        watch: returns the proof once a peer is dead (`failure_detector.watch_until_dead`).
        hear: returns once a peer has answered (`failure_detector.watch_until_heard`).
        trace: where it records evidence, decisions and what it publishes; None: nowhere.
        history: where it records what the controller is told and decides; None: nowhere.
        here: what the agent in this process tells of its workers; None: there is no agent.
        beside: what works in this process while the job goes on under this master.

    Attributes:
        over: it publishes the end of the job, or has done so; what is left is to remove the job's keys.
        ledgers: of the job's datasets; they answer while this master runs.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        publisher: Publisher,
        terms: Terms,
        *,
        say: Callable[[str], None],
        now: Callable[[], float],
        memory: Memory,
        waits: Waits,
        watch: Callable[[str, str], Awaitable[LossReason]] = failure_detector.watch_until_dead,
        hear: Callable[[str, str], Awaitable[None]] = failure_detector.watch_until_heard,
        trace: Trace | None = None,
        lease_ttl: float = 5.0,
        history: "History | None" = None,
        here: Here | None = None,
        security: Security = Security(),  # noqa: B008  a frozen value
        beside: "Sequence[BesideMaster]" = (),
    ) -> None:
        self._store = store
        self._keys = keys
        self._publisher = publisher
        self._say = say
        self._now = now
        self._trace = trace or Trace()
        self._waits = waits
        self._history = history
        run, begun = secrets.token_hex(6), now()
        if history:
            from .history import Begin  # here, because few jobs have a trace

            history.add(Begin.of(keys.job, terms, memory, run, lease_ttl), begun)
        self._controller = Controller(keys, terms, begun, memory=memory, run=run, lease_ttl=lease_ttl)
        self._away_until = -math.inf  # that the controller has been told of
        self._changed = asyncio.Event()
        self._nodes = NodeWatch(
            store, keys, publisher, waits, say=say, dies=watch, heard=hear, tell=self._tell, changed=self._changed.set
        )
        self._pace = Pace()
        self._plan: PlanKeeper | None = None
        self._servers = ServersSeen()
        self._terms = terms
        self._here = here
        self._examination = Examination(self._run, here, self._diagnosed, say, security)
        self._beside = beside
        self._adopted = 0  # the number of the round that an earlier master has left
        self._clocks: ClockService | None = None
        self.over = False
        self.ledgers = Ledgers(
            store, keys, publisher.leadership, self._current, say=say, now=now, ended=self._list_ended, waits=waits
        )

    async def run(self) -> Header:
        """Leads until the job is over and its keys are gone; returns the last header.

        Raises Deposed when another master leads, StoreError when the store does not answer.
        """
        tasks: list[asyncio.Task[None]] = []
        beside: list[asyncio.Task[None]] = []
        comparison = asyncio.create_task(self._compare(), name="master: comparison of ranks")
        try:
            revision = await self._read_nodes()
            tasks.append(asyncio.create_task(self._follow(revision + 1), name="master: members"))
            found = await takeover.find(self._store, self._keys, self._publisher, self._say)
            self._adopted = found.header.number if found.header else 0
            self._tell(found)
            while True:
                self._changed.clear()
                if self._controller.phase == "leading" and len(tasks) == 1:
                    tasks.append(asyncio.create_task(self._keep_ledgers(), name="master: ledgers"))
                    if self._terms.plan:
                        self._plan = _begin_plan(self._terms, self._controller, self._say, self._tell)
                        beside.append(asyncio.create_task(self._plan.keep_plan(self._now, self._changed.set)))
                    beside += [asyncio.create_task(self._work_beside(each)) for each in self._beside]
                if self._controller.phase == "ended":
                    await cancel(*beside)  # nodes leave now, which is no loss
                else:
                    for task in (*tasks, *beside):
                        if task.done():
                            task.result()
                    self._nodes.check()
                before = self._now()
                rest = self._tell(events.Look())
                looked = self._now() - before
                for effect in rest:
                    if over := await self._carry_out(effect, before + looked):
                        return over
                if looked > LONG_LOOK:
                    await asyncio.sleep(min(looked, LONGEST_GATHERING))
        finally:
            await cancel(*tasks, *beside, *self._nodes.tasks, *self._examination.tasks, comparison)

    async def _keep_ledgers(self) -> None:
        try:
            await self.ledgers.run()
        finally:
            self._changed.set()  # so that `run` sees that this has ended

    async def _work_beside(self, work: "BesideMaster") -> None:
        try:
            await work.work_beside(self._store, self._keys, self._publisher.leadership, self._say, self._waits)
        finally:
            self._changed.set()  # as above

    @property
    def status(self) -> Status:
        """The whole job now, as far as this master knows."""
        now = self._now()
        status = self._pace.complete(self._controller.status(now, self.ledgers.progress), now)
        return dataclasses.replace(status, parameter_servers=self._servers.list_servers(now))

    @property
    def clocks(self) -> "ClockService":
        """The workers', where the job's run is known: see `Ledgers.serves`."""
        if self._clocks is None:
            from .data.clock_service import ClockService  # here, because few jobs bound how far workers are apart

            self._clocks = ClockService(self._current, self._list_ended, self._adopted, say=self._say, now=self._now)
        return self._clocks

    def stepped(self, told: Stepped) -> None:
        """Rank 0 has committed so many steps."""
        self._pace.told(told, self._now())
        if self._plan is not None:
            self._plan.count_steps(told, self._now())

    def served(self, told: NodeServers) -> None:
        """A node has told of its parameter servers."""
        self._servers.take_word(told, self._now())

    def _list_ended(self) -> frozenset[int]:
        return self._controller.ended_ranks

    def _current(self) -> Current | None:
        header = self._controller.header
        if header is None:
            return None
        running, round = header.state == "open", self._controller.round
        world = round.assigned[0].world_size if round.assigned else 0
        since = {each.incarnation: each.since for each in round.assigned if each.since}
        ranks, rows_from = round.ranks, header.rows_from
        return Current(header.run, header.number, running, world, round.incarnations, ranks, since, rows_from)

    # -- what the store says ----------------------------------------------------------------------------------------

    async def _read_nodes(self) -> int:
        listing = await self._store.list(self._keys.nodes)
        for item in listing.items:
            self._see(item)
        return listing.revision

    async def _follow(self, revision: int) -> None:
        seen = 0
        try:
            while True:
                try:
                    async for changes in self._store.watch(self._keys.nodes, revision, prefix=True):
                        for event in changes:
                            # Or the return of a node is taken for its removal.
                            self._tell(events.WatchedTo(event.kv.mod_revision))
                            if event.kind == "put":
                                self._see(event.kv)
                            else:
                                self._tell(events.Unregistered(self._keys.node_at(event.kv.key)))
                        revision = max(event.kv.mod_revision for event in changes) + 1
                        self._tell(events.WatchedTo(revision))
                        self._changed.set()
                        seen += len(changes)
                        if seen >= A_TURN:
                            seen = 0
                            await asyncio.sleep(0)
                except Compacted:
                    listing = await self._store.list(self._keys.nodes)
                    revision = listing.revision + 1
                    here = {self._keys.node_at(item.key) for item in listing.items}
                    for node in sorted(self._controller.registered - here):
                        self._tell(events.Unregistered(node))
                    for item in listing.items:
                        self._see(item)
                    self._tell(events.WatchedTo(revision))
                    self._changed.set()
        finally:
            self._changed.set()  # so that `run` sees that this has ended

    def _see(self, item: KeyValue) -> None:
        node, member = self._keys.node_at(item.key), decode_or_none(Member, item.value)
        member = member if member and member.node == node else None
        order = item.create_revision
        self._tell(events.Registered(node, member, order, self._store.reached(order), unreadable(item.value)))
        if member and member.report.exits:
            self._wake_workers()

    def _wake_workers(self) -> None:
        """The round, or who has ended in it, may be others: workers that wait for those may go on."""
        self.ledgers.look()
        if self._clocks:
            self._clocks.look_again()

    # -- the controller ---------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> list[effects.TakesTime]:
        """Has the controller know of `event`, and does at once what takes no time; returns the rest."""
        now = self._now()
        rest: list[effects.TakesTime] = []
        if self._store.away_until != self._away_until:
            self._away_until = self._store.away_until
            self._on(events.StoreAway(self._away_until), now)
        for effect in self._on(event, now):
            if isinstance(effect, effects.TakesTime):
                rest.append(effect)
            else:
                self._do_at_once(effect)
        return rest

    def _do_at_once(self, effect: effects.AtOnce) -> None:
        match effect:
            case effects.Say(line):
                self._say(line)
            case effects.Watch() | effects.Unwatch() | effects.Listen() | effects.Unlisten():
                self._nodes.carry_out(effect)
            case effects.FirstEvidence(number):
                self._trace.instant("evidence", ROW, round=number)
            case effects.Examine(number, nodes):
                self._examination.begin(number, nodes)
            case effects.Condemn(node, condemned):
                self._trace.instant("condemn", ROW, rank=condemned.rank, reason=condemned.why)
                self._examination.end(node, condemned)
            case effects.Replace(node, replacement):
                self._trace.instant("replace", ROW, node=node.node, reason=replacement.why)
                self._examination.replace(node, replacement)
            case effects.Note(finding):
                if self._here:
                    self._here.tell(finding)
                self._trace.instant(
                    "diagnosis", ROW, kind=finding.kind, rank=finding.rank, strength=finding.strength, reason=finding
                )

    def _run(self) -> str:
        header = self._controller.header
        return header.run if header else ""

    async def _compare(self) -> None:
        """Compares the ranks of each round now and then: that costs more than the watch for those that stand still."""
        pause, number = self._terms.compare_after, 0
        while pause:
            await asyncio.sleep(pause)
            header = self._controller.header
            if header is None or header.state != "open" or header.world_size < 2:
                continue
            if header.number != number:
                number, pause = header.number, self._terms.compare_after
            await self._examination.compare(header.number, self._controller.suspected)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _diagnosed(self, round: int, findings: tuple[Finding, ...], compares: bool, age: float) -> None:
        self._tell(events.Diagnosed(round, findings, compares, age))
        self._changed.set()

    def _on(self, event: Event, now: float) -> tuple[Effect, ...]:
        found = self._controller.on(event, now)
        if self._history:
            self._history.add(event, now, found)
        return found

    async def _carry_out(self, effect: effects.TakesTime, decided: float) -> Header | None:
        """Does what was `decided` then; the last header, where the job is over and its keys are gone."""
        match effect:
            case effects.Refuse(node, order, incarnation, eviction, line):
                await self._publisher.evict(self._keys.node(node), order, incarnation, eviction)
                self._say(line)
                self._tell(events.Refused(node, incarnation))
            case SplitUntil():
                header = self._controller.header
                await self._publisher.keep_time(header.prefix if header else "", effect)
            case Targets():
                await self._publisher.put_targets(effect)
                for each in effect.wanted:
                    why = each.reason
                    self._trace.instant("target", ROW, role=each.role, count=each.count, code=why.code, reason=why)
            case effects.Confirm():
                await self._publisher.confirm()
            case effects.ReadSuccesses():
                self._tell(events.SuccessesRead(await takeover.successes(self._store, self._keys)))
            case effects.Abandon(missing, queues):
                done = await self._publisher.abandon(missing)
                if done:
                    await self._publisher.drop_data(queues=queues)
                else:
                    await self._read_nodes()
                self._tell(events.Abandoned(done))
            case effects.Publish():
                if effect.header.state == "succeeded" and (left := await self.ledgers.find_left(self._adopted > 0)):
                    self._tell(events.DataLeft(left))
                    return None
                await self._publish(effect)
                what, reason, number = effect.what, effect.header.reason, effect.header.number
                self._trace.since(
                    effect.begun, "decision", ROW, until=decided, what=what, code=reason.code, reason=reason
                )
                self._trace.since(decided, "publish", ROW, what=what, round=number)
                self._wake_workers()
                await asyncio.sleep(0)
            case effects.Wait(until):
                if self._controller.phase == "leading":
                    self._waits.done(LEADING)
                if not self._changed.is_set():
                    await _wait(self._changed, None if until is None else until - self._now())
            case effects.CleanUp(succeeded):
                with contextlib.suppress(Deposed):  # cleaned up by an attempt whose answer was lost
                    await self._publisher.clean_up(succeeded=succeeded)
                return self._controller.header
        return None

    async def _publish(self, effect: effects.Publish) -> None:
        header, publisher = effect.header, self._publisher
        if effect.what == "open":
            previous = self._controller.header
            header = dataclasses.replace(header, prefix=publisher.prefix(header.number))
            drop = previous.prefix if previous else ""
            if not await publisher.open(header, effect.assignments, drop, self._controller.all_here, effect.peers):
                return  # somebody was lost while the store was slow: it is decided again
        else:
            self.over = self.over or header.final  # from here on it may be in the store
            await publisher.put_header(header)
        revision = publisher.header_revision
        self._tell(events.Published(header, revision, self._store.reached(revision)))


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass


def _begin_plan(
    terms: Terms, controller: Controller, say: Callable[[str], None], tell: Callable[[Event], object]
) -> "PlanKeeper":
    from .resources.plan_keeper import PlanKeeper  # here, because few jobs have a plan

    return PlanKeeper(terms, controller, say, tell)
