"""The job's controller: everything the master knows when it decides, and what it decides (pure).

`Controller.on(event, now)` takes one thing that has happened, and returns the effects that follow from it. `master.py`
learns of events from the store and from the failure detector, and carries effects out. Nothing here reads a clock, a
store, a random number or the environment, so the same events at the same times have the same effects: a recorded
history can be replayed (`history.py`).

What is decided is in two functions besides: `rendezvous/round.py` decides on the membership, and `incident.py` whose
fault a failure was. Here is the assembly of their input: who is registered, who is lost and how that is known, who was
started with something else, and what an earlier master has left.

    loading ──▶ returning ──▶ adopting ──▶ leading ──▶ ended
       │            leases ended while the     ▲
       │            store was away: nodes      │
       │            may register again         │
       └── there is no header ─────────────────┘
"""

import dataclasses
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..rendezvous import peers, ranks
from ..rendezvous.header import Eviction, Header, Tally
from ..rendezvous.identity.secret import OTHER_SECRET
from ..rendezvous.keys import Keys
from ..rendezvous.member import DEPARTING, Fingerprint, Member, describe_difference, describe_own
from ..rendezvous.node_reasons import (
    LeaseExpired,
    NodeReason,
    NotRegistered,
    NotReturned,
    OtherCommand,
    StartedAgain,
    Unexplained,
    cut,
)
from ..rendezvous.peers import Peers
from ..rendezvous.ranks import Assignment, NodeWorkers
from ..rendezvous.reasons import AwaitingReports, NoChange, Reason, StandsStill
from ..rendezvous.round import (
    Cause,
    Finish,
    Keep,
    OnHang,
    OnStraggler,
    Open,
    OpenInPlace,
    Outcome,
    Policy,
    Round,
    Seen,
    Survey,
    Suspend,
    decide,
    survey,
)
from ..rendezvous.time_split import category
from . import effects, events, incident, status
from .data.ledger import Progress
from .diagnosis.requests import Suspected
from .effects import Effect
from .events import Event
from .faults import Faults
from .incident import Evidence
from .memory import Memory
from .standstill import RoundNodes, Standstill
from .status import Node, Status
from .targets import Target, targets
from .training_time import TrainingTime, since

RETURN_SECONDS = 10.0
"""So long a node has to register again, when its lease ended because the store was away and its agent answers."""

SILENT_SECONDS = 3.0
"""The same of a node whose agent does not answer: it may be out of reach for this node alone."""

LEASE_LATE = 1.0
"""Seconds after its last that a lease may still be there: etcd looks every half second."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the job was started with, as far as the master needs it; equal on every node."""

    policy: Policy
    max_restarts: int
    same_failure_limit: int
    fingerprint: Fingerprint
    farewell_seconds: float = 30.0
    """How long a finished job waits for its nodes to leave before it removes the job's keys."""
    on_hang: OnHang = "report"
    """What is done about a job that stands still, beside saying why."""
    on_straggler: OnStraggler = "report"
    """What is done about a rank for which the others wait in each step, beside saying which."""
    compare_after: float = 0.0
    """Seconds after which the ranks of a round are compared, and again each time after twice as long; 0: never."""
    own_failure_limit: int = 0
    """The limit for an exception of the script's own; 0: the same as for any other."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A node that is in the store no more.

    Attributes:
        node: its name.
        left: why, where it left in order; else None.
        how: how its loss was noticed, where it did not.
    """

    node: str
    left: NodeReason | None
    how: NodeReason

    def evidence(self, number: int) -> Evidence:
        """That round `number` has lost it."""
        if self.left is not None:
            return Evidence(number, left=((self.node, self.left),))
        return Evidence(number, lost=((self.node, self.how),))


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A node whose lease ended when the store had been away, so that this tells nothing of the node.

    Attributes:
        node: its name.
        since: when its key was missed (the master's clock).
        seen: as it was last seen; None where this master never saw it.
        answers: its agent has answered since then.
    """

    node: str
    since: float
    seen: Seen | None
    answers: bool = False


Phase = Literal["loading", "returning", "adopting", "leading", "ended"]


class Controller:
    """One leadership's view of the job, from its first event until the job is over.

    Args:
        keys: what the job's keys are called.
        terms: what the job was started with.
        now: the time of its beginning; all times are on the master's clock, in seconds.
        memory: what this node knows from before; what this controller learns is added.
        run: what a run that this controller begins is called; random.
        lease_ttl: seconds that a node's lease lives.

    Attributes:
        phase: see above.
        header: the current one, once it is adopted or published.
        in_round: incarnations of the current round.
        ranks: of each of them.
    """

    def __init__(
        self,
        keys: Keys,
        terms: Terms,
        now: float,
        *,
        memory: Memory,
        run: str,
        lease_ttl: float = 5.0,
    ) -> None:
        self._keys = keys
        self._terms = terms
        self._now = now
        self._memory = memory
        self._run = run
        self._lease_ttl = lease_ttl
        self._lost_how = memory.dead
        self.phase: Phase = "loading"
        self.header: Header | None = None
        self.in_round: frozenset[str] = frozenset()  # of `_round.nodes`
        self.ranks: Mapping[str, range] = {}
        self._effects: list[Effect] = []
        self._found = events.Found(None, 0, now)
        self._waited = False  # the successes have to be read again before the header is adopted
        self._away_until = -math.inf
        self._header_revision = 0
        self._published = now
        self._fingerprint = terms.fingerprint
        self._members: dict[str, Seen] = {}  # by node; `gone/INCARNATION` where it has left after its success
        self._ignored: dict[str, None] = {}  # nodes whose key holds no member, and that have been said
        self._mismatched: dict[str, None] = {}  # nodes that were started with something else, in order
        self._differing = set[str]()  # incarnations that may be so, and were told of
        self._watched: set[str] = set()  # incarnations
        self._awaited: dict[str, _Awaited] = {}  # by incarnation
        self._overdue: dict[str, NodeReason] = {}  # incarnations that were awaited in vain, or evicted before, and why
        self._unconfirmed = False  # since leases ended, it has not been asked whether this node still leads
        self._round = Round(0, (), False, now)
        optional = {role.name for role in terms.policy.roles if role.optional}
        self._faults = Faults(terms.max_restarts, terms.same_failure_limit, terms.own_failure_limit, optional)
        self._assigned: tuple[Assignment, ...] = ()  # of `_round`, in rank order; of a suspended job, those that it had
        self._opening: tuple[Assignment, ...] = ()  # of the round that is being published
        self._chosen: frozenset[str] = frozenset()  # the same while it is being published
        self._gone: dict[str, Loss] = {}  # of those, who has gone meanwhile
        self._removed: deque[tuple[int, str]] = deque()  # since which revision the dead are in the store no more
        self._said = ""
        self._standstill = Standstill(terms.on_hang, terms.on_straggler, now, roles=bool(terms.policy.roles))
        self._targets: tuple[Target, ...] = ()
        self._training = TrainingTime()
        self._next: tuple[Reason, float | None] = (NoChange(), None)  # what it waits for, and until when

    def on(self, event: Event, now: float) -> tuple[Effect, ...]:
        """What follows from `event`, in the order in which it is to be done.

        Only `Look` has effects that take time (`Refuse` and those below it), and is to be told again after them.
        """
        self._now = now
        self._effects = []
        match event:
            case events.Registered():
                self._see(event)
            case events.Unregistered(node):
                self._forget(node)
            case events.WatchedTo(revision):
                self._forget_the_removed(revision)
            case events.StoreAway(until):
                self._away_until = until
            case events.Died():
                self._died(event)
            case events.Answered(incarnation):
                if awaited := self._awaited.get(incarnation):
                    self._awaited[incarnation] = dataclasses.replace(awaited, answers=True)
            case events.Evicted(incarnation, revision):
                self._removed.append((revision, incarnation))
            case events.Refused():
                self._refused(event)
            case events.Found():
                self._load(event)
            case events.SuccessesRead(successes):
                self._found = dataclasses.replace(self._found, successes=successes)
                self._waited = False
            case events.Abandoned(done):
                self._abandon(done)
            case events.Published():
                self._adopt_published(event)
            case events.Diagnosed():
                self._diagnose(event)
            case events.Look():
                self._look()
        return tuple(self._effects)

    def all_here(self) -> bool:
        """Nobody was lost of the round that is being published."""
        present = {seen.member.incarnation for seen in self._members.values() if not seen.gone}
        return self._chosen <= present

    @property
    def registered(self) -> frozenset[str]:
        """The nodes whose keys are in the store, as far as it was told."""
        return frozenset(node for node, seen in self._members.items() if not seen.gone)

    @property
    def ended_ranks(self) -> frozenset[int]:
        """The ranks of the current round whose workers have ended with exit code 0."""
        reports = (seen.member.report for seen in self._members.values() if seen.member.incarnation in self.in_round)
        return frozenset(
            exit_.rank for report in reports for exit_ in report.exits if exit_.ok and exit_.round == self._round.number
        )

    def status(self, now: float, datasets: Sequence[Progress] = ()) -> Status:
        """The whole job now; its ledgers say how far `datasets` are."""
        header = self.header
        members = {seen.member.incarnation: seen.member for seen in self._members.values()}
        found = ((each, members.get(each.incarnation)) for each in self._assigned)
        others = [seen for seen in self._members.values() if seen.member.incarnation not in self.in_round]
        waits_for, until = self._next if self.phase == "leading" else (NoChange(), None)
        return Status(
            job=self._keys.job,
            run=header.run if header else self._run,
            state=header.state if header else "gathering",
            round=self._round.number,
            age=now - (self._published if header else self._round.opened_at),
            cause=header.cause if header else None,
            reason=header.reason if header else None,
            next=waits_for,
            deadline=None if until is None else max(0.0, until - now),
            in_place=header is not None and header.in_place,
            targets=self._targets,
            world_size=header.world_size if header and header.state == "open" else 0,
            nodes=tuple(Node.of(member, each) if member else Node.lost(each) for each, member in found),
            standbys=tuple(Node.of(seen.member) for seen in sorted(others, key=lambda seen: seen.order)),
            returning=tuple(awaited.node for awaited in self._awaited.values()),
            tally=status.counted(header) if header else Tally(),
            max_restarts=self._faults.max_restarts,
            incidents=self._faults.list_incidents(now),
            datasets=tuple(datasets),
            goodput=self._training.until(now),
            diagnosis=self._standstill.list_findings(now),
        )

    # -- what an earlier master has left ----------------------------------------------------------------------------

    def _load(self, found: events.Found) -> None:
        self._found = found
        self._header_revision, self._published = found.revision, found.published
        header = found.header
        if header is None:
            self._round = Round(0, (), False, self._memory.began)
            self._say_elected()
            self._lead()
            return
        if not header.final:
            self._overdue.update((each.incarnation, each.reason) for each in found.evictions)
            done = {each.incarnation for each in found.successes}
            self._await_missing([each for each in found.assigned if each.incarnation not in done])
        self.phase = "returning"

    def _adopt(self, header: Header) -> None:
        """Goes on with the header that was found, unless nobody is there who is in its round or has come back."""
        assigned = self._found.assigned
        known = [assignment.incarnation for assignment in assigned]
        self._round = Round(header.number, (), False, self._now)
        present = {seen.member.incarnation for seen in self._members.values()}
        returned = any(seen.member.run == header.run for seen in self._members.values())
        if not returned and not present.intersection(known):
            missing = [
                (each.node, each.incarnation)
                for each in assigned
                if each.node not in self._members and each.node not in self._ignored
            ]
            self._do(effects.Abandon(() if header.final else tuple(missing), queues=header.state == "succeeded"))
            return
        self.header = header
        self._faults.adopt(header, self._published)
        self._fingerprint = header.fingerprint
        for node, seen in self._members.items():
            self._compare(node, seen.member)
        published = self._published
        grown_at = published if header.cause == "joined" else -math.inf
        node_workers = self._node_workers(assigned)
        self._round = Round(
            header.number, tuple(known), header.state == "open", published, grown_at=grown_at, node_workers=node_workers
        )
        self._take_part(assigned)
        reports = {seen.member.incarnation: seen.member.report for seen in self._members.values()}
        last = {each: reports.get(each) for each in known}
        self._training = TrainingTime.continued(self._found, last, self._now)
        if self._found.spent:
            self._standstill.begin_round({each: report for each, report in last.items() if report})
        self._say(f"the job's master now runs here and continues with round {header.number}")
        for success in self._found.successes:
            member = success.member
            if member and member.incarnation not in present and member.report.round == header.number:
                self._members[f"gone/{member.incarnation}"] = Seen(member, 0, self._now, gone=True)
                present.add(member.incarnation)
        for assignment in assigned:
            if assignment.incarnation not in present and self._round.running:
                how = self._lost_how.get(assignment.incarnation) or self._overdue.get(
                    assignment.incarnation, NotRegistered()
                )
                self._note(Evidence(header.number, lost=((assignment.node, how),)))
        for seen in self._members.values():
            self._gather(seen.member)
        self._lead()

    def _abandon(self, done: bool) -> None:
        header = self._found.header
        if not done or header is None:
            return  # one of them has come back: looks again
        # Where that run had ended, this node came for the next one.
        began = self._memory.began if header.final else self._memory.abandoned.setdefault(header.run, self._now)
        self._round = Round(header.number, (), False, began)
        self._say_elected()
        self._lead()  # the remains of an earlier run: this one begins afresh, with the next number

    def _lead(self) -> None:
        self.phase = "ended" if self.header and self.header.final else "leading"
        # Of the dead, only who is registered still or was in the round is of any concern.
        for incarnation in [each for each in self._lost_how if each not in self._watched]:
            if incarnation not in self.in_round:
                del self._lost_how[incarnation]

    def _say_elected(self) -> None:
        if self._terms.policy.max_nodes > 1:
            self._say("the job's master now runs here")

    # -- who is registered ------------------------------------------------------------------------------------------

    def _see(self, event: events.Registered) -> None:
        node, member = event.node, event.member
        if member is None:
            if node not in self._ignored:
                self._ignored[node] = None
                version = "its value is not a member (another version of elastic-run?)"
                self._say(f"ignoring {self._keys.node(node)}: {f'it has {OTHER_SECRET}' if event.sealed else version}")
            return
        proof = self._lost_how.get(member.incarnation)
        if member.incarnation not in self._watched and (proof or member.agent_address):
            self._watched.add(member.incarnation)
            self._do(effects.Watch(node, event.order, member.incarnation, member.agent_address, proof))
        if proof:
            return
        for incarnation, awaited in list(self._awaited.items()):
            if awaited.node == member.node and incarnation != member.incarnation:
                self._give_up(incarnation, StartedAgain())
        before = self._members.get(node)
        if before and before.member.incarnation != member.incarnation:
            self._lose(self._members.pop(node))
            before = None
        if before and self._has_saved(before.member, member):
            self._round = dataclasses.replace(self._round, saved_at=self._now)
            self._training.saved(self._now)
        since = before.since if before else event.since
        if awaited := self._awaited.pop(member.incarnation, None):
            self._do(effects.Unlisten(member.incarnation))
            since = awaited.seen.since if awaited.seen else since
        self._gone.pop(member.incarnation, None)
        self._members.pop(f"gone/{member.incarnation}", None)
        waited = before.ready_at if before and before.member.report.ready else self._now
        ready_at = waited if member.report.ready else -math.inf
        self._members[node] = Seen(member, event.order, since, ready_at=ready_at)
        self._compare(node, member)
        self._gather(member)
        self._watch_progress(member)

    def _compare(self, node: str, member: Member) -> None:
        """Whether the member was started with something else."""
        self._mismatched.pop(node, None)
        if member.fingerprint != self._fingerprint:
            self._mismatched[node] = None

    def _has_saved(self, before: Member, member: Member) -> bool:
        """Workers of the current round have told of another checkpoint."""
        known = before.report.saved if before.report.round == member.report.round else 0
        return (
            member.incarnation in self.in_round
            and member.report.round == self._round.number
            and member.report.saved > known
        )

    def _forget(self, node: str) -> None:
        self._ignored.pop(node, None)
        seen = self._members.pop(node, None)
        if seen is None:
            return
        incarnation = seen.member.incarnation
        finished = seen.member.report.state in ("succeeded", *DEPARTING)
        if incarnation not in self._lost_how and not finished and self._was_away():
            self._await(incarnation, seen.member.node, seen.member.agent_address, seen)
            return
        self._lose(seen)

    def _lose(self, seen: Seen) -> None:
        """It has left the store for good."""
        incarnation = seen.member.incarnation
        if incarnation not in self._lost_how:
            self._unwatch(incarnation)
        report = seen.member.report
        left = (report.problem or Unexplained()) if report.state in DEPARTING else None
        how = self._lost_how.get(incarnation) or self._overdue.get(incarnation, LeaseExpired())
        loss = Loss(seen.member.node, left, how)
        if incarnation in self._chosen:
            self._gone[incarnation] = loss
        if report.state == "succeeded" and report.round == self._round.number:
            self._members[f"gone/{incarnation}"] = dataclasses.replace(seen, gone=True)
        elif incarnation in self.in_round:
            self._note(loss.evidence(self._round.number))

    def _unwatch(self, incarnation: str) -> None:
        if incarnation in self._watched:
            self._watched.remove(incarnation)
            self._do(effects.Unwatch(incarnation))

    def _died(self, event: events.Died) -> None:
        self._lost_how[event.incarnation] = event.how
        seen = self._members.get(event.node)
        if seen and seen.member.incarnation == event.incarnation:
            self._members[event.node] = dataclasses.replace(seen, member=event.last or seen.member)
            self._forget(event.node)  # now: the next round must not wait for the store's news, nor hold the dead
        elif (awaited := self._awaited.get(event.incarnation)) and awaited.seen and event.last:
            seen = dataclasses.replace(awaited.seen, member=event.last)
            self._awaited[event.incarnation] = dataclasses.replace(awaited, seen=seen)

    def _forget_the_removed(self, revision: int) -> None:
        """The watch has told of all before `revision`: who was removed until then is not heard of again.

        Of the current round the proofs are kept until the next is published, which they explain.
        """
        while (
            self.phase in ("leading", "ended")
            and self._removed
            and self._removed[0][0] < revision
            and self._removed[0][1] not in self.in_round
        ):
            _, incarnation = self._removed.popleft()
            self._lost_how.pop(incarnation, None)
            self._unwatch(incarnation)

    # -- leases that ended while the store was away -----------------------------------------------------------------

    def _was_away(self) -> bool:
        """A lease that has just ended may have ended because the store was away, and not its holder."""
        return self._now - self._away_until < self._lease_ttl + LEASE_LATE

    def _await(self, incarnation: str, node: str, address: str, seen: Seen | None) -> None:
        self._awaited[incarnation] = _Awaited(node, self._now, seen)
        self._unconfirmed = True
        self._do(effects.Listen(node, incarnation, address))

    def _await_missing(self, assigned: Sequence[Assignment]) -> None:
        """What a new master does where nodes of the round are missing, and the store was away, or may have been.

        A node that has just registered cannot know. One that did so some time ago has renewed its lease meanwhile.
        """
        unknown = self._now - self._memory.began < self._lease_ttl / 2 or self._now - self._away_until < RETURN_SECONDS
        present = {seen.member.incarnation for seen in self._members.values()}
        for assignment in assigned:
            incarnation = assignment.incarnation
            known = incarnation in present or incarnation in self._lost_how or incarnation in self._overdue
            if (unknown or self._was_away()) and not known:
                self._await(incarnation, assignment.node, assignment.agent_address, None)

    def _returns(self) -> float | None:
        """Until when to wait for nodes that may register again; None: for nobody. Gives up those that are overdue."""
        untils = list[float]()
        for incarnation, awaited in list(self._awaited.items()):
            until = max(awaited.since, self._away_until) + (RETURN_SECONDS if awaited.answers else SILENT_SECONDS)
            if self._now < until and incarnation not in self._lost_how:
                untils.append(until)
                continue
            self._give_up(incarnation, NotReturned(awaited.answers))
        if not untils:
            return None
        names = ", ".join(awaited.node for awaited in self._awaited.values())
        self._say_once(
            f"leases may have expired while the store was unavailable: waiting for {names} to register again"
        )
        return min(untils)

    def _give_up(self, incarnation: str, why: NodeReason) -> None:
        """That node is not awaited any more: it is lost."""
        awaited = self._awaited.pop(incarnation)
        self._do(effects.Unlisten(incarnation))
        self._overdue[incarnation] = why
        if awaited.seen:
            self._lose(awaited.seen)

    # -- nodes of another job ---------------------------------------------------------------------------------------

    def _refuse_mismatched(self) -> bool:
        """The next node that was started with something else under this job's id is evicted; False: there is none."""
        ours = self._fingerprint
        for node in list(self._mismatched):
            seen = self._members.get(node)
            if seen and not seen.gone and (difference := describe_difference(seen.member.fingerprint, ours)):
                word = Eviction(OtherCommand(self._keys.job, cut(difference)), final=True)
                line = f"refuses node {seen.member.node}: {describe_difference(ours, seen.member.fingerprint)}"
                self._do(effects.Refuse(node, seen.order, seen.member.incarnation, word, line))
                return True
            if seen and seen.member.incarnation not in self._differing:
                self._differing.add(seen.member.incarnation)
                own = describe_own(ours, seen.member.fingerprint)
                self._say(f"node {node} has the job's --rdzv-id and may differ: {own}")
            del self._mismatched[node]
        return False

    def _refused(self, event: events.Refused) -> None:
        # While that was written the node's user may have started it again, under the same key.
        held = self._members.get(event.node)
        if held and held.member.incarnation == event.incarnation:
            self._lose(self._members.pop(event.node))
            self._mismatched.pop(event.node, None)

    # -- a job that stands still ------------------------------------------------------------------------------------

    def _watch_progress(self, member: Member) -> None:
        """Has the round examined where a node tells, or tells again, that a worker makes no progress."""
        report = member.report
        if report.round != self._round.number or member.incarnation not in self.in_round or not self._round.running:
            return
        news = self._standstill.hear_report(member.incarnation, report)
        if news == "worse" and self.phase == "leading":
            self._do(effects.Examine(self._round.number, self.suspected))
        elif news == "moves":
            self._training.goes_on(self._now)
            self._effects += self._standstill.forget_hangs()

    @property
    def suspected(self) -> tuple[Suspected, ...]:
        """The nodes of the round, as they are asked for evidence: without those that have left after their success."""
        left = {each.node for each in self._assigned if f"gone/{each.incarnation}" in self._members}
        return tuple(self._suspected(each) for each in self._assigned if each.node not in left)

    def _suspected(self, each: Assignment) -> Suspected:
        seen = self._members.get(each.node)
        host = seen.member.host if seen else ""
        return Suspected(each.node, each.incarnation, host, each.agent_address, each.role, each.nproc)

    def _diagnose(self, event: events.Diagnosed) -> None:
        if event.round != self._round.number or not self._round.running or self.phase != "leading":
            return
        nodes = RoundNodes(
            self._round.number,
            self._assigned,
            {each.incarnation: self._suspected(each) for each in self._assigned},
            self._standbys(),
        )
        if event.compares:
            self._effects += self._standstill.judge_stragglers(event.findings, nodes, self._now)
            return
        todo, seconds = self._standstill.judge_hangs(event.findings, nodes, self._now)
        self._effects += todo
        if seconds is None:
            self._training.goes_on(self._now)
        else:
            self._training.stands_still(self._now, event.age + seconds)

    def _standbys(self) -> Sequence[Member]:
        """Nodes that could have a part in the round."""
        return [
            seen.member
            for node, seen in self._members.items()
            if seen.member.incarnation not in self.in_round
            and seen.member.report.state == "waiting"
            and not seen.gone
            and node not in self._mismatched
        ]

    # -- incidents --------------------------------------------------------------------------------------------------

    def _gather(self, member: Member) -> None:
        report, inside = member.report, member.incarnation in self.in_round
        if report.state in ("running", "succeeded") and report.round == self._round.number:
            self._training.runs(member.incarnation, self._now)
        run = self.header.run if self.header else ""
        self._charge(self._faults.hear_report(member, self._round, self._now, inside=inside, run=run))

    def _note(self, evidence: Evidence) -> None:
        self._charge(self._faults.note(evidence, self._round, self._now))

    def _charge(self, todo: Sequence[Effect]) -> None:
        for each in todo:
            if isinstance(each, effects.FirstEvidence):
                self._training.ended(self._now, category("left" if self._faults.only_left else "lost"))
        self._effects += todo

    def _take_part(self, assigned: tuple[Assignment, ...]) -> None:
        """The nodes of the current round are these."""
        self._assigned, self.in_round = assigned, frozenset(each.incarnation for each in assigned)
        self.ranks = {each.incarnation: each.ranks for each in assigned}
        self._faults.take_part(assigned)

    def _node_workers(self, assigned: Sequence[Assignment]) -> tuple[NodeWorkers, ...]:
        """What the nodes of a round do, in a job with roles."""
        return tuple(NodeWorkers(each.role, each.nproc) for each in assigned) if self._terms.policy.roles else ()

    # -- decisions --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        match self.phase:
            case "loading":
                raise AssertionError("what an earlier master has left has not been told")
            case "returning":
                if (until := self._returns()) is not None:
                    self._waited = True
                    self._do(effects.Wait(until))
                elif self._waited:
                    self._do(effects.ReadSuccesses())
                else:
                    self.phase = "adopting"
                    self._look()
            case "adopting":
                assert self._found.header is not None, "without a header there is nothing to adopt"
                self._adopt(self._found.header)
            case "leading":
                until = self._returns()  # before the walk: those that are given up are no members any more
                found = survey(self._members.values(), self._round, self._terms.policy)
                self._aim(finishing=found.finishing)
                if not self._refuse_mismatched():
                    self._decide(found, until)
            case "ended":
                self._aim(finishing=True)
                self._see_off()

    def _aim(self, *, finishing: bool) -> None:
        """Tells of each target that has changed."""
        ended = self.header.state if self.header and self.header.final else None
        found = targets(self._round, self._terms.policy, finishing=finishing, ended=ended)
        for target in found:
            if target not in self._targets:
                self._do(target)
        self._targets = found

    def _decide(self, found: Survey, until: float | None) -> None:
        """What follows from what the members say; `until`: nodes that may register again are awaited so long."""
        if until is not None:
            if self._unconfirmed:  # its own lease may have ended, too
                self._unconfirmed = False
                self._do(effects.Confirm())
            self._do(effects.Wait(until))
            return
        if self._standstill.ends and self._round.running:
            self._finish("failed", StandsStill(cut(str(self._standstill.ends))))
            return
        fault = self._faults.judge_round(self._round.number) if self._round.running else None
        current = dataclasses.replace(self._round, fault=fault)
        decision, reason = decide(found, current, self._terms.policy, self._now)
        match decision:
            case Keep(until):
                self._next = reason, until
                self._say_once("" if isinstance(reason, AwaitingReports) else str(reason))  # it is over in a moment
                if self._round.running and (spent := self._training.unkept(self._round.number, self._now)):
                    self._do(spent)  # first, for the wait may be long
                self._do(effects.Wait(until))
            case Open():
                self._open(decision, reason)
            case Suspend(cause):
                self._suspend(cause, reason)
            case Finish(outcome):
                self._finish(outcome, reason)

    def _open(self, decision: Open, reason: Reason) -> None:
        number = self._round.number + 1
        previous = self.header
        before = {each.incarnation: each for each in self._assigned}
        started = {each: before[each].since or self._round.number for each in decision.untouched}
        assignments = ranks.assign(number, decision.nodes, decision.node_workers, before, started)
        first = decision.nodes[0]
        tally, because = self._faults.log.settled(), None
        if decision.cause == "joined":
            new = [member.node for member in decision.nodes if member.incarnation not in self.in_round]
            because = incident.joins(self._round.number, new)
        elif self._round.running:  # a suspension has published its cause already
            because = self._faults.log.verdict(self._round.number)
        addr, port = first.host, first.ports[number % len(first.ports)] if first.ports else 0
        if previous and decision.untouched:  # these go on where they met
            addr, port = previous.master_addr, previous.master_port
        header = Header(
            number=number,
            run=previous.run if previous else self._run,
            state="open",
            cause=decision.cause,
            reason=reason,
            fingerprint=self._fingerprint,
            nodes=len(assignments),
            previous_nodes=previous.nodes if previous else 0,
            world_size=assignments[0].world_size,
            master_addr=addr,
            master_port=port,
            restart_count=incident.count_restarts(tally, because, previous),
            max_restarts=self._faults.max_restarts,
            tally=tally,
            incident=because,
            in_place=isinstance(decision, OpenInPlace),
            roles=ranks.by_role(decision.node_workers),
        )
        self._chosen, self._gone = frozenset(member.incarnation for member in decision.nodes), {}
        self._opening = assignments
        self._publish("open", header, assignments, peers.chunks(number, decision.nodes, assignments))

    def _suspend(self, cause: Cause, reason: Reason) -> None:
        assert self.header is not None, "only a running round is suspended"
        tally, because = self._faults.log.settled(), self._faults.log.verdict(self._round.number)
        header = dataclasses.replace(
            self.header,
            number=self._round.number + 1,
            state="waiting",
            in_place=False,
            cause=cause,
            reason=reason,
            previous_nodes=self.header.nodes,
            tally=tally,
            incident=because,
            restart_count=incident.count_restarts(tally, because, self.header),
            deadline_seconds=self._terms.policy.recovery_timeout,
        )
        self._publish("suspend", header)

    def _finish(self, outcome: Outcome, reason: Reason) -> None:
        tally, because = self._faults.charge_end(self._round.number, failed=outcome in ("failed", "repeated"))
        base = self.header or Header(0, self._run, "open", "start", reason, self._fingerprint)
        header = dataclasses.replace(
            base,
            number=self._round.number + 1,
            state=outcome,
            in_place=False,
            reason=reason,
            previous_nodes=base.nodes,
            tally=tally,
            incident=because,
            restart_count=incident.count_restarts(tally, None, base),
            max_restarts=self._faults.max_restarts,
        )
        self._publish("finish", header)

    def _publish(
        self,
        what: Literal["open", "suspend", "finish"],
        header: Header,
        assignments: tuple[Assignment, ...] = (),
        where: tuple[Peers, ...] = (),
    ) -> None:
        begun = self._faults.began_at(self._round.number, self._now)
        self._do(
            effects.Publish(
                what,
                self._training.headed(header, self._now),
                assignments,
                begun,
                where,
            )
        )

    def _adopt_published(self, event: events.Published) -> None:
        header = self.header = event.header
        self._header_revision, self._published = event.revision, event.published
        self._next = NoChange(), None
        self._training.ended(self._now, since(header))
        self._effects += self._faults.publish(header, self._now)
        if header.final:
            self.phase = "ended"
            return
        if header.state == "waiting":
            self._round = dataclasses.replace(
                self._round, number=header.number, running=False, opened_at=self._now, fault=None, saved_at=-math.inf
            )
            return
        grown_at = self._now if header.cause == "joined" else self._round.grown_at
        nodes = tuple(assignment.incarnation for assignment in self._opening)
        self._round = Round(
            header.number, nodes, True, self._now, grown_at=grown_at, node_workers=self._node_workers(self._opening)
        )
        self._standstill.begin_round()
        self._take_part(self._opening)
        self._training.opened(nodes, self._now, header.cause, in_place=header.in_place)
        for node in [node for node, seen in self._members.items() if seen.gone]:
            del self._members[node]
        # What they said of this round while its header's answer was awaited was not yet about the current one.
        for seen in self._members.values():
            self._gather(seen.member)
        for loss in self._gone.values():
            self._note(loss.evidence(header.number))
        self._chosen, self._gone = frozenset(), {}
        self._overdue.clear()

    def _see_off(self) -> None:
        """Waits until every node has read the end and left, then has the job's keys removed.

        Nodes that came after the end came for the next run, and are not waited for; nor is a node that came in the
        moment in which all others were told to leave.
        """
        assert self.header is not None, "a job ends by a header"
        deadline = self._published + self._terms.farewell_seconds
        if self._now < deadline:
            until = self._returns()
            if until is not None or any(self._takes_leave(seen) for seen in self._members.values()):
                self._do(effects.Wait(deadline if until is None else min(deadline, until)))
                return
        self._do(effects.CleanUp(self.header.state == "succeeded"))

    def _takes_leave(self, seen: Seen) -> bool:
        if seen.gone or seen.order > self._header_revision:
            return False
        preempted = self.header is not None and self.header.state == "preempted"
        return not preempted or seen.member.report.state in DEPARTING

    # -- effects ----------------------------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _say(self, line: str) -> None:
        self._do(effects.Say(line))

    def _say_once(self, line: str) -> None:
        if line and self._said != line:
            self._say(line)
        self._said = line
