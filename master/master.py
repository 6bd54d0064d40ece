"""The master: under leadership, turns what the members report into rounds.

It holds nothing that the store does not hold. What it decides is decided by pure functions: `rendezvous/round.py`
(membership) and `incident.py` (whose fault). This file gathers their input, waits for their deadlines, and has
`publish.py` write what they say.
"""

import asyncio
import dataclasses
import math
import secrets
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ..rendezvous import failure_detector, ranks
from ..rendezvous.errors import Compacted, Deposed
from ..rendezvous.header import MAX_REASON, Eviction, Header, Incident
from ..rendezvous.keys import Keys
from ..rendezvous.member import DEPARTING, MAX_EXITS, Fingerprint, Member, differing_sources
from ..rendezvous.ranks import Assignment
from ..rendezvous.round import Cause, Finish, Keep, Open, Outcome, Policy, Round, Seen, Suspend, plan
from ..rendezvous.store.contract import Event, KeyValue, Store
from ..rendezvous.store.waits import Waits
from ..rendezvous.trace_file import Trace
from ..rendezvous.wire.values import Malformed, decode
from . import incident
from .data.ledger_service import Current, Ledgers
from .incident import Evidence, FailedWorker
from .incident_log import Docket
from .publish import Publisher

T = TypeVar("T")

ROW = "master"
"""Of the trace."""

LEADING = "the job's master"
DEAD = "the eviction of nodes that are dead"
"""What may wait for the store."""

A_TURN = 32
"""Events, or members, that are looked at before the loop's other tasks have their turn: this loop renews the lease, and
a thousand nodes may have news at once."""

RETURN_SECONDS = 10.0
"""So long a node has to register again, when its lease ended because the store was away and its agent answers."""

SILENT_SECONDS = 3.0
"""The same of a node whose agent does not answer: it may be out of reach for this node alone."""

LEASE_LATE = 1.0
"""Seconds after its last that a lease may still be there: etcd looks every half second."""

LONG_LOOK, LONGEST_GATHERING = 0.001, 0.1
"""Seconds. A look at all members that takes longer than the one is followed by as long a time in which news is only
gathered, up to the other: else a thousand nodes that report one by one cost a thousand looks at a thousand nodes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the job was started with, as far as the master needs it; equal on every node."""

    policy: Policy
    max_restarts: int
    same_failure_limit: int
    fingerprint: Fingerprint
    farewell_seconds: float = 30.0
    """How long a finished job waits for its nodes to leave before it removes the job's keys."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A node that is in the store no more.

    Attributes:
        node: its name.
        left: why, where it left in order; else None.
        how: how its loss was noticed, where it did not.
    """

    node: str
    left: str | None
    how: str

    def evidence(self, number: int) -> Evidence:
        """That round `number` has lost it."""
        if self.left is not None:
            return Evidence(number, left=((self.node, self.left),))
        return Evidence(number, lost=((self.node, self.how),))


@dataclass(eq=False, slots=True)
class _Awaited:
    """A node whose lease ended when the store had been away, so that this tells nothing of the node.

    Attributes:
        node: its name.
        since: when its key was missed (the master's clock).
        seen: as it was last seen; None where this master never saw it.
        heard: ends when its agent has answered since then.
    """

    node: str
    since: float
    seen: Seen | None
    heard: asyncio.Task[None]


class Master:
    """Runs one leadership until the job is over or the leadership is lost.

    Args:
        store, keys, publisher: where the job is.
        terms: what the job was started with.
        say: prints one line for a person.
        now: the clock, seconds (`loop.time`); all of the master's times are on it.
        began: since when this node has renewed a lease, and knows whether the store was away (the clock's time). Where
            no round has begun since, it also is since when the node waits for one.
        waits: what waits for the store on this node.
        watch: returns, with words, once a peer is proven dead (`failure_detector.watch_until_dead`).
        hear: returns once a peer has answered (`failure_detector.watch_until_heard`).
        dead: incarnations that are proven dead, each with the proof in words; what this master learns is added, because
            the same evidence is not had twice, and this master may lose its leadership before it has acted on it.
        trace: where it records evidence, decisions and what it publishes; None: nowhere.
        lease_ttl: seconds that a node's lease lives.
        abandoned: runs that this node has found without any of their nodes, and when; what this master finds is added.

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
        began: float,
        waits: Waits,
        watch: Callable[[str, str], Awaitable[str]] = failure_detector.watch_until_dead,
        hear: Callable[[str, str], Awaitable[None]] = failure_detector.watch_until_heard,
        dead: dict[str, str] | None = None,
        trace: Trace | None = None,
        lease_ttl: float = 5.0,
        abandoned: dict[str, float] | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._publisher = publisher
        self._terms = terms
        self._say = say
        self._now = now
        self._watch = watch
        self._hear = hear
        self._lease_ttl = lease_ttl
        self._began = began
        self._abandoned = {} if abandoned is None else abandoned
        self._lost_how = {} if dead is None else dead
        self._trace = trace or Trace()
        self._waits = waits
        self._evidence_at = (-1, 0.0)  # the round that evidence came of last, and when its first came
        self._fingerprint = terms.fingerprint
        self._max_restarts = terms.max_restarts
        self._members: dict[str, Seen] = {}  # by key
        self._ignored: dict[str, None] = {}  # keys that hold no member, and have been said
        self._strangers: dict[str, None] = {}  # keys of members that were started with something else, in order
        self._watchers: dict[str, asyncio.Task[None]] = {}  # by incarnation
        self._awaited: dict[str, _Awaited] = {}  # by incarnation
        self._overdue: dict[str, str] = {}  # incarnations that were awaited in vain, or put out before, and why
        self._taken_over = False
        self._unconfirmed = False  # since leases ended, this master has not asked whether it still leads
        self._in_round: frozenset[str] = frozenset()  # of `_round.nodes`
        self._exits = 0  # that the nodes of `_round` can report
        self._header: Header | None = None
        self._round = Round(0, (), False, now())
        self._docket = Docket()
        self._chosen: frozenset[str] = frozenset()  # incarnations of the round that is being published
        self._gone: dict[str, Loss] = {}  # of those, who has gone meanwhile
        self._removed: deque[tuple[int, str]] = deque()  # since which revision the dead are in the store no more
        self._first_end: FailedWorker | None = None  # the first worker of the round that ended with 0 by itself
        self._changed = asyncio.Event()
        self._said = ""
        self._look = 0.0  # seconds that the last look at all members took
        self.over = False
        self.ledgers = Ledgers(
            store,
            keys,
            publisher.leadership,
            self._current,
            say=say,
            now=now,
            ended=self._ended_ranks,
            waits=self._waits,
        )

    async def run(self) -> Header:
        """Leads until the job is over and its keys are gone; returns the last header.

        Raises Deposed when another master leads, StoreError when the store does not answer.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            revision = await self._look_at_nodes()
            watch = asyncio.create_task(self._follow(revision + 1), name="master: members")
            tasks.append(watch)
            await self._take_over(watch)
            self._taken_over = True
            self._forget_the_absent()
            ledgers = asyncio.create_task(self._keep_ledgers(), name="master: ledgers")
            tasks.append(ledgers)
            while not (self._header and self._header.final):
                self._changed.clear()
                for task in (watch, ledgers, *self._watchers.values()):
                    if task.done():
                        task.result()
                await self._refuse_strangers()
                deadline = await self._step()
                self._waits.done(LEADING)
                if not self._changed.is_set():
                    await _wait(self._changed, None if deadline is None else deadline - self._now())
                if self._look > LONG_LOOK:
                    await asyncio.sleep(min(self._look, LONGEST_GATHERING))
            await self._farewell()
            return self._header
        finally:
            tasks += self._watchers.values()
            tasks += [awaited.heard for awaited in self._awaited.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_ledgers(self) -> None:
        try:
            await self.ledgers.run()
        finally:
            self._changed.set()  # so that `run` sees that this has ended

    def _current(self) -> Current | None:
        header = self._header
        if header is None:
            return None
        return Current(header.run, header.number, header.state == "open", header.world_size)

    def _ended_ranks(self) -> frozenset[int]:
        """The ranks of the current round whose workers have ended with exit code 0."""
        reports = (seen.member.report for seen in self._members.values() if seen.member.incarnation in self._in_round)
        return frozenset(
            exit_.rank for report in reports for exit_ in report.exits if exit_.ok and exit_.round == self._round.number
        )

    # -- what the store says --------------------------------------------------------------------------------------

    async def _look_at_nodes(self) -> int:
        listing = await self._store.list(self._keys.nodes)
        for item in listing.items:
            self._see(item)
        return listing.revision

    async def _take_over(self, watch: "asyncio.Task[None]") -> None:
        found = await self._store.get(self._keys.round)
        self._publisher.header_revision = found.mod_revision if found else 0
        published = self._store.reached(self._publisher.header_revision)
        header = _read(Header, found.value) if found else None
        if found and header is None:
            self._say(f"{found.key} holds what this version cannot read: the job begins again")
        await self._publisher.drop_abandoned(header.prefix if header else "")
        if header is None:
            self._round = Round(0, (), False, self._began)
            self._say_elected()
            return
        assigned: list[Assignment] = []
        if header.prefix:
            for item in (await self._store.list(f"{self._keys.assignments}{header.prefix}/")).items:
                assignment = _read(Assignment, item.value)
                if assignment:
                    assigned.append(assignment)
        assigned.sort(key=lambda assignment: assignment.group_rank)
        successes = await self._store.list(self._keys.successes)
        if not header.final:
            for item in (await self._store.list(self._keys.evictions)).items:
                word = _read(Eviction, item.value)
                self._overdue[item.key.removeprefix(self._keys.evictions)] = word.reason if word else "it was put out"
            done = {item.key for item in successes.items}
            self._await_missing([each for each in assigned if self._keys.success(each.incarnation) not in done])
        while (until := self._returns()) is not None:
            self._changed.clear()
            if watch.done():
                watch.result()
            await _wait(self._changed, until - self._now())
            successes = await self._store.list(self._keys.successes)
        known = [assignment.incarnation for assignment in assigned]
        self._round = Round(header.number, (), False, self._now())
        while self._is_abandoned(header, known):
            missing = [
                (each.node, each.incarnation)
                for each in assigned
                if (key := self._keys.node(each.node)) not in self._members and key not in self._ignored
            ]
            if await self._publisher.abandon([] if header.final else missing):
                await self._publisher.drop_data(queues=header.state == "succeeded")
                # Where that run had ended, this node came for the next one.
                began = self._began if header.final else self._abandoned.setdefault(header.run, self._now())
                self._round = Round(header.number, (), False, began)
                self._say_elected()
                return  # the remains of an earlier run: this one begins afresh, with the next number
            await self._look_at_nodes()
        # From here on nothing is awaited: the watch of the members runs.
        present = {seen.member.incarnation for seen in self._members.values()}
        self._header = header
        self._docket = Docket(header.tally, header.incident)
        self._fingerprint = header.fingerprint
        for key, seen in self._members.items():
            self._compare(key, seen.member)
        self._max_restarts = header.max_restarts
        grown_at = published if header.cause == "joined" else -math.inf
        self._round = Round(header.number, tuple(known), header.state == "open", published, grown_at=grown_at)
        self._in_round = frozenset(known)
        self._exits = _reportable(assigned)
        self._say(f"this node is the master now; it goes on with round {header.number}")
        for item in successes.items:
            member = _read(Member, item.value)
            if member and member.incarnation not in present and member.report.round == header.number:
                self._members[f"gone/{member.incarnation}"] = Seen(member, 0, self._now(), gone=True)
                present.add(member.incarnation)
        for assignment in assigned:
            if assignment.incarnation not in present and self._round.running:
                how = self._lost_how.get(assignment.incarnation) or self._overdue.get(
                    assignment.incarnation,
                    "it was gone when this master took over: its lease had ended, or it had been put out",
                )
                self._note(Evidence(header.number, lost=((assignment.node, how),)))
        for seen in self._members.values():
            self._gather(seen.member)

    def _is_abandoned(self, header: Header, known: Sequence[str]) -> bool:
        """Nobody is there who is in the header's round, or was in its run and has come back."""
        present = {seen.member.incarnation for seen in self._members.values()}
        returned = any(seen.member.run == header.run for seen in self._members.values())
        return not returned and not present.intersection(known)

    def _forget_the_absent(self) -> None:
        """Of the dead, only who is registered still or was in the round is of any concern."""
        for incarnation in [each for each in self._lost_how if each not in self._watchers]:
            if incarnation not in self._in_round:
                del self._lost_how[incarnation]

    def _say_elected(self) -> None:
        if self._terms.policy.max_nodes > 1:
            self._say("this node is the job's master")

    async def _follow(self, revision: int) -> None:
        seen = 0
        try:
            while True:
                try:
                    async for events in self._store.watch(self._keys.nodes, revision, prefix=True):
                        for event in events:
                            self._forget_the_removed(event.kv.mod_revision)  # or its return is taken for its removal
                            self._apply(event)
                        revision = max(event.kv.mod_revision for event in events) + 1
                        self._forget_the_removed(revision)
                        self._changed.set()
                        seen += len(events)
                        if seen >= A_TURN:
                            seen = 0
                            await asyncio.sleep(0)
                except Compacted:
                    listing = await self._store.list(self._keys.nodes)
                    revision = listing.revision + 1
                    for key in sorted(set(self._members) - {item.key for item in listing.items}):
                        self._forget(key)
                    for item in listing.items:
                        self._see(item)
                    self._forget_the_removed(revision)
                    self._changed.set()
        finally:
            self._changed.set()  # so that `run` sees that this has ended

    def _apply(self, event: Event) -> None:
        if event.kind == "put":
            self._see(event.kv)
        else:
            self._forget(event.kv.key)

    def _see(self, item: KeyValue) -> None:
        member = _read(Member, item.value)
        if member is None or self._keys.node(member.node) != item.key:
            if item.key not in self._ignored:
                self._ignored[item.key] = None
                self._say(f"ignores {item.key}: its value is not a member (another version of elastic-run?)")
            return
        dead = member.incarnation in self._lost_how
        if member.incarnation not in self._watchers and (dead or member.presence):
            self._watchers[member.incarnation] = asyncio.create_task(
                self._watch_member(item, member), name=f"master: presence of {member.node}"
            )
        if dead:
            return
        for incarnation, awaited in list(self._awaited.items()):
            if awaited.node == member.node and incarnation != member.incarnation:
                self._give_up(incarnation, "was started again")
        before = self._members.get(item.key)
        if before and before.member.incarnation != member.incarnation:
            self._lose(item.key, self._members.pop(item.key))
            before = None
        if before and self._has_saved(before.member, member):
            self._round = dataclasses.replace(self._round, saved_at=self._now())
        since = before.since if before else self._store.reached(item.create_revision)
        if awaited := self._awaited.pop(member.incarnation, None):
            awaited.heard.cancel()
            since = awaited.seen.since if awaited.seen else since
        self._gone.pop(member.incarnation, None)
        self._members.pop(f"gone/{member.incarnation}", None)
        self._members[item.key] = Seen(member, item.create_revision, since)
        self._compare(item.key, member)
        self._gather(member)

    def _compare(self, key: str, member: Member) -> None:
        """Whether the member is a stranger."""
        self._strangers.pop(key, None)
        if member.fingerprint != self._fingerprint:
            self._strangers[key] = None

    def _has_saved(self, before: Member, member: Member) -> bool:
        """Workers of the current round have told of another checkpoint."""
        known = before.report.saved if before.report.round == member.report.round else 0
        return (
            member.incarnation in self._in_round
            and member.report.round == self._round.number
            and member.report.saved > known
        )

    def _forget(self, key: str) -> None:
        self._ignored.pop(key, None)
        seen = self._members.pop(key, None)
        if seen is None:
            return
        incarnation = seen.member.incarnation
        finished = seen.member.report.state in ("succeeded", *DEPARTING)
        if incarnation not in self._lost_how and not finished and self._was_away():
            self._await(incarnation, seen.member.node, seen.member.presence, seen)
            return
        self._lose(key, seen)

    def _lose(self, key: str, seen: Seen) -> None:
        """It has left the store for good."""
        incarnation = seen.member.incarnation
        if incarnation not in self._lost_how and (watcher := self._watchers.pop(incarnation, None)):
            watcher.cancel()
        report = seen.member.report
        left = report.problem if report.state in DEPARTING else None
        how = self._lost_how.get(incarnation) or self._overdue.get(
            incarnation, "it has not been heard of: its lease ended"
        )
        loss = Loss(seen.member.node, left, how)
        if incarnation in self._chosen:
            self._gone[incarnation] = loss
        if report.state == "succeeded" and report.round == self._round.number:
            self._members[f"gone/{incarnation}"] = dataclasses.replace(seen, gone=True)
        elif incarnation in self._in_round:
            self._note(loss.evidence(self._round.number))

    def _forget_the_removed(self, revision: int) -> None:
        """The watch has told of all before `revision`: who was removed until then is not heard of again.

        Of the current round the proofs are kept until the next is published, which they explain.
        """
        while (
            self._taken_over
            and self._removed
            and self._removed[0][0] < revision
            and self._removed[0][1] not in self._in_round
        ):
            _, incarnation = self._removed.popleft()
            self._lost_how.pop(incarnation, None)
            self._watchers.pop(incarnation, None)

    def _was_away(self) -> bool:
        """A lease that has just ended may have ended because the store was away, and not its holder."""
        return self._now() - self._store.away_until < self._lease_ttl + LEASE_LATE

    def _await(self, incarnation: str, node: str, address: str, seen: Seen | None) -> None:
        heard = asyncio.create_task(self._listen(address, incarnation), name=f"master: return of {node}")
        self._awaited[incarnation] = _Awaited(node, self._now(), seen, heard)
        self._unconfirmed = True

    async def _listen(self, address: str, incarnation: str) -> None:
        try:
            await self._hear(address, incarnation)
        except Exception:  # noqa: BLE001  as in `_watch_member`: then it has not been heard
            await asyncio.get_running_loop().create_future()
        finally:
            self._changed.set()

    def _await_missing(self, assigned: Sequence[Assignment]) -> None:
        """What a new master does where nodes of the round are missing, and the store was away, or may have been.

        A node that has just registered cannot know. One that did so some time ago has renewed its lease meanwhile.
        """
        now = self._now()
        unknown = now - self._began < self._lease_ttl / 2 or now - self._store.away_until < RETURN_SECONDS
        present = {seen.member.incarnation for seen in self._members.values()}
        for assignment in assigned:
            incarnation = assignment.incarnation
            known = incarnation in present or incarnation in self._lost_how or incarnation in self._overdue
            if (unknown or self._was_away()) and not known:
                self._await(incarnation, assignment.node, assignment.presence, None)

    def _returns(self) -> float | None:
        """Until when to wait for nodes that may register again; None: for nobody. Gives up those that are overdue."""
        back, untils = self._store.away_until, list[float]()
        for incarnation, awaited in list(self._awaited.items()):
            answers = awaited.heard.done()
            until = max(awaited.since, back) + (RETURN_SECONDS if answers else SILENT_SECONDS)
            if self._now() < until and incarnation not in self._lost_how:
                untils.append(until)
                continue
            what = "does not register again, though it answers" if answers else "does not answer"
            self._give_up(incarnation, what)
        if not untils:
            return None
        names = ", ".join(awaited.node for awaited in self._awaited.values())
        self._say_once(f"leases have ended while the store was away, or may have: waits for {names} to register again")
        return min(untils)

    def _give_up(self, incarnation: str, what: str) -> None:
        """That node is not awaited any more: it is lost."""
        awaited = self._awaited.pop(incarnation)
        awaited.heard.cancel()
        self._overdue[incarnation] = f"its key is gone from the store, and it {what}"
        if awaited.seen:
            self._lose(self._keys.node(awaited.node), awaited.seen)

    def _say_once(self, line: str) -> None:
        if line and line != self._said:
            self._say(line)
        self._said = line

    async def _watch_member(self, held: KeyValue, member: Member) -> None:
        """Waits for a proof of its death, where there is none yet, and puts it out: one task for each incarnation."""
        try:
            if member.incarnation in self._lost_how or await self._dies(held.key, member):
                await self._put_out(held, member.incarnation)
        finally:
            self._changed.set()  # so that `run` sees how this has ended

    async def _dies(self, key: str, member: Member) -> bool:
        """Returns when it has died; False: it cannot be watched."""
        try:
            how = await self._watch(member.presence, member.incarnation)
        except Exception as error:  # noqa: BLE001  one member's oddity must not cost the job its master
            self._say(f"cannot watch node {member.node} at {member.presence!r} ({error!r}): its lease decides alone")
            return False
        done = await self._last_success(member)
        self._lost_how[member.incarnation] = how
        seen = self._members.get(key)
        if seen and seen.member.incarnation == member.incarnation:
            self._members[key] = dataclasses.replace(seen, member=done or seen.member)
            self._forget(key)  # now: the next round must not wait for the store's news, nor hold the dead
        elif (awaited := self._awaited.get(member.incarnation)) and awaited.seen and done:
            awaited.seen = dataclasses.replace(awaited.seen, member=done)
        self._changed.set()
        return True

    async def _last_success(self, member: Member) -> Member | None:
        """What the dead may have said last: the proof of a death can be faster than the news of a success."""
        key = self._keys.success(member.incarnation)
        found = await self._waits.until_answered(DEAD, lambda: self._store.get(key))
        return _read(Member, found.value) if found else None

    async def _put_out(self, held: KeyValue, incarnation: str) -> None:
        """Takes the dead out of the store; a later life of the node, which may have its key by now, stays."""
        word = Eviction(self._lost_how[incarnation])
        evict = partial(self._publisher.evict, held.key, held.create_revision, incarnation, word)
        self._removed.append((await self._waits.until_answered(DEAD, evict), incarnation))

    async def _refuse_strangers(self) -> None:
        """Puts out nodes that were started with something else under this job's id."""
        ours = self._fingerprint
        for key in list(self._strangers):
            seen = self._members.get(key)
            if seen and not seen.gone and (difference := describe_difference(seen.member.fingerprint, ours)):
                reason = (
                    f"job {self._keys.job!r} is another job than this node's: {difference}. "
                    "Give this one its own --rdzv-id, or start both with the same command and source"
                )
                word = Eviction(reason[:MAX_REASON], final=True)
                await self._publisher.evict(key, seen.order, seen.member.incarnation, word)
                self._say(f"refuses node {seen.member.node}: {describe_difference(ours, seen.member.fingerprint)}")
                # While that was written the node's user may have started it again, under the same key.
                held = self._members.get(key)
                if held is None or held.member.incarnation != seen.member.incarnation:
                    continue
                self._lose(key, self._members.pop(key))
            self._strangers.pop(key, None)

    # -- incidents ------------------------------------------------------------------------------------------------

    def _gather(self, member: Member) -> None:
        report = member.report
        if member.incarnation in self._in_round:
            if report.state in DEPARTING:
                self._note(Evidence(self._round.number, left=((member.node, report.problem),)))
            elif report.state == "failed" and report.round == self._round.number:
                unsaid = not any(
                    not exit_.ok and not exit_.stopped and exit_.round == report.round for exit_ in report.exits
                )
                if report.problem or unsaid:
                    words = report.problem or "has workers that failed, and its report does not say how"
                    self._note(Evidence(self._round.number, problems=((member.node, words),)))
        if report.run and self._header and report.run != self._header.run:
            return
        for exit_ in report.exits:
            if self._first_end is None and exit_.ok and not exit_.stopped and exit_.round == self._round.number:
                self._first_end = FailedWorker(member.node, member.host, exit_)
            if not exit_.ok and not exit_.stopped and exit_.round in (self._round.number, self._round.number - 1):
                first = self._first_end
                before = (first,) if first and first.exit.round == exit_.round else ()
                self._note(
                    Evidence(exit_.round, exits=(FailedWorker(member.node, member.host, exit_),), finished=before)
                )

    def _note(self, evidence: Evidence) -> None:
        if evidence.round == self._round.number != self._evidence_at[0]:
            self._evidence_at = evidence.round, self._now()
            self._trace.instant("evidence", ROW, round=evidence.round)
        known = self._docket.pending
        self._docket.note(evidence, self._round, self._now())
        self._correct(known, self._round.number)

    def _correct(self, known: Incident | None, number: int) -> None:
        """Says why round `number` was opened, where its header, which named `known`, was written too early to tell."""
        found = self._docket.pending
        if known and found and found.cause == "failure" and found.text != known.text:
            self._say(f"round {number} was opened because {found.text}")

    # -- decisions ------------------------------------------------------------------------------------------------

    async def _step(self) -> float | None:
        """Decides once and carries it out; returns when to look again."""
        if (until := self._returns()) is not None:
            if self._unconfirmed:  # its own lease may have ended, too
                await self._publisher.confirm()
                self._unconfirmed = False
            return until
        fault, now = None, self._now()
        if self._round.running:
            limit = self._terms.same_failure_limit
            fault = self._docket.fault(self._round.number, self._max_restarts, limit, self._exits)
        current = dataclasses.replace(self._round, fault=fault)
        decision, reason = plan(tuple(self._members.values()), current, self._terms.policy, now)
        decided = self._now()
        self._look = decided - now
        match decision:
            case Keep(until):
                self._say_once(reason)
                return until
            case Open():
                await self._open(decision, reason)
            case Suspend(cause):
                await self._suspend(cause, reason)
            case Finish(outcome):
                await self._finish(outcome, reason)
        what = type(decision).__name__.lower()
        begun = self._evidence_at[1] if self._evidence_at[0] == current.number else now
        self._trace.since(begun, "decision", ROW, until=decided, what=what, reason=reason)
        self._trace.since(decided, "publish", ROW, what=what, round=current.number + 1)
        self.ledgers.look()
        return self._now()

    async def _open(self, decision: Open, reason: str) -> None:
        number = self._round.number + 1
        previous = self._header
        assignments = ranks.assign(number, decision.nodes)
        first = decision.nodes[0]
        tally, because = self._docket.settled(), None
        if decision.cause == "joined":
            new = [member.node for member in decision.nodes if member.incarnation not in self._in_round]
            because = incident.arrivals(self._round.number, new)
        elif self._round.running:  # a suspension has published its cause already
            because = self._docket.verdict(self._round.number)
        header = Header(
            number=number,
            run=previous.run if previous else secrets.token_hex(6),
            state="open",
            cause=decision.cause,
            reason=reason,
            fingerprint=self._fingerprint,
            prefix=self._publisher.prefix(number),
            nodes=len(assignments),
            previous_nodes=previous.nodes if previous else 0,
            world_size=assignments[0].world_size,
            master_addr=first.host,
            master_port=first.ports[number % len(first.ports)] if first.ports else 0,
            restart_count=incident.charge(tally, because).failures,
            max_restarts=self._max_restarts,
            tally=tally,
            incident=because,
        )
        self._chosen, self._gone = frozenset(member.incarnation for member in decision.nodes), {}
        if not await self._publisher.open(
            header, assignments, previous.prefix if previous else "", lambda: self._all_here(decision.nodes)
        ):
            return  # somebody was lost while the store was slow: decides again
        self._header = header
        self._docket.turn(number, tally, because)
        self._correct(because, number)
        grown_at = self._now() if decision.cause == "joined" else self._round.grown_at
        nodes = tuple(member.incarnation for member in decision.nodes)
        self._round = Round(number, nodes, True, self._now(), grown_at=grown_at)
        self._first_end = None
        self._in_round = frozenset(self._round.nodes)
        self._exits = _reportable(assignments)
        for key in [key for key, seen in self._members.items() if seen.gone]:
            del self._members[key]
        # What they said of this round while its header's answer was awaited was not yet about the current one.
        for seen in self._members.values():
            self._gather(seen.member)
        for loss in self._gone.values():
            self._note(loss.evidence(number))
        self._chosen, self._gone = frozenset(), {}
        self._overdue.clear()

    def _all_here(self, nodes: Sequence[Member]) -> bool:
        present = {seen.member.incarnation for seen in self._members.values() if not seen.gone}
        return all(member.incarnation in present for member in nodes)

    async def _suspend(self, cause: Cause, reason: str) -> None:
        assert self._header is not None, "only a running round is suspended"
        tally, because = self._docket.settled(), self._docket.verdict(self._round.number)
        header = dataclasses.replace(
            self._header,
            number=self._round.number + 1,
            state="waiting",
            cause=cause,
            reason=reason,
            previous_nodes=self._header.nodes,
            tally=tally,
            incident=because,
            restart_count=incident.charge(tally, because).failures,
            deadline_seconds=self._terms.policy.recovery_timeout,
        )
        await self._publisher.put_header(header)
        self._header = header
        self._docket.turn(header.number, tally, because)
        self._round = Round(header.number, self._round.nodes, False, self._now(), grown_at=self._round.grown_at)

    async def _finish(self, outcome: Outcome, reason: str) -> None:
        because = self._docket.verdict(self._round.number) if outcome in ("failed", "repeated") else None
        tally = incident.charge(self._docket.settled(), because)
        base = self._header or Header(0, secrets.token_hex(6), "open", "start", "", self._fingerprint)
        header = dataclasses.replace(
            base,
            number=self._round.number + 1,
            state=outcome,
            reason=reason,
            previous_nodes=base.nodes,
            tally=tally,
            incident=because,
            restart_count=tally.failures,
            max_restarts=self._max_restarts,
        )
        self.over = True  # from here on it may be in the store
        await self._publisher.put_header(header)
        self._header = header

    async def _farewell(self) -> None:
        """Waits until every node has read the end and left, then removes the job's keys.

        Nodes that came after the end came for the next run, and are not waited for; nor is a node that came in the
        moment in which all others were told to leave.
        """
        deadline = self._store.reached(self._publisher.header_revision) + self._terms.farewell_seconds
        while self._now() < deadline:
            until = self._returns()
            if until is None and not any(self._takes_leave(seen) for seen in self._members.values()):
                break
            self._changed.clear()
            await _wait(self._changed, min(deadline, deadline if until is None else until) - self._now())
        try:
            await self._publisher.bury(succeeded=self._header is not None and self._header.state == "succeeded")
        except Deposed:
            return  # buried by an attempt whose answer was lost

    def _takes_leave(self, seen: Seen) -> bool:
        if seen.gone or seen.order > self._publisher.header_revision:
            return False
        preempted = self._header is not None and self._header.state == "preempted"
        return not preempted or seen.member.report.state in DEPARTING


def describe_difference(here: Fingerprint, there: Fingerprint) -> str:
    """What differs between two nodes' starts, in words for a reader `here`; empty where nothing does."""
    names = {
        "script": "the script",
        "arguments": "the script's arguments",
        "nnodes": "--nnodes",
        "nproc_per_node": "--nproc-per-node",
        "version": "elastic-run's version",
    }
    mine, theirs = dataclasses.asdict(here), dataclasses.asdict(there)
    mine["arguments"], theirs["arguments"] = shlex.join(here.arguments), shlex.join(there.arguments)
    differences = [
        f"{words} is {theirs[name]!r} there and {mine[name]!r} here"
        for name, words in names.items()
        if mine[name] != theirs[name]
    ]
    if files := differing_sources(here, there):
        differences.append(f"the source of {', '.join(files)} is not the same there and here")
    return "; ".join(differences)


def _reportable(assignments: Sequence[Assignment]) -> int:
    """How many exits of a round its nodes can report."""
    return sum(min(assignment.nproc, MAX_EXITS) for assignment in assignments)


def _read(kind: type[T], value: bytes) -> T | None:
    try:
        return decode(kind, value)
    except Malformed:
        return None


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass
