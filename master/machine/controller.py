"""The job's controller: everything the master knows when it decides, and what it decides (pure).

`Controller.on(event, now)` takes one thing that has happened, and returns the effects that follow from it. `master.py`
learns of events from the store and from the failure detector, and carries effects out. Nothing here reads a clock, a
store, a random number or the environment, so the same events at the same times have the same effects: a recorded
history can be replayed (`history.py`).

Each fact has one owner, a part that knows no other: `membership.py`, `mismatches.py`, `adoption.py`, `faults.py`,
`standstill.py`, `publication.py`, `training_time.py`; `round_state.py` and `ending.py` are values. What one learns of
another is passed on here. `rendezvous/round.py` decides on the membership, `incident.py` whose fault a failure was.

    loading ──▶ returning ──▶ adopting ──▶ leading ──▶ ended
       │            leases ended while the     ▲
       │            store was away: nodes      │
       │            may register again         │
       └── there is no header ─────────────────┘
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header, Tally
from ...rendezvous.keys import Keys
from ...rendezvous.member import Fingerprint, Member, Report, read_ranks
from ...rendezvous.node_reasons import cut
from ...rendezvous.ranks import Assignment
from ...rendezvous.reasons import AwaitingReports, NoChange, Reason, RecordsLeft, StandsStill
from ...rendezvous.round import Finish, Keep, OnHang, OnStraggler, Open, Policy, Survey, Suspend, decide, survey
from ...rendezvous.time_split import MICROSECONDS, category
from ...rendezvous.wire.fields import Words
from .. import status
from ..data.ledger import Progress
from ..diagnosis.requests import Suspected
from ..status import Node, Status
from . import effects, events
from .adoption import Adoption
from .changes import Change, Heard, Lost
from .effects import Effect
from .ending import Ending
from .events import Event
from .faults import Faults
from .incident import Evidence
from .membership import Membership
from .memory import Memory
from .mismatches import Mismatches
from .publication import Publication
from .round_state import RoundState
from .standstill import RoundNodes, Standstill
from .targets import PlannedSize, Target, Targets, targets
from .training_time import Training, TrainingTime, since


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
    plan: Words = ""
    """What says how many nodes the job should have (`master/resources/planners/`); empty: it takes all that it gets."""


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
        round: the current one.
    """

    def __init__(
        self, keys: Keys, terms: Terms, now: float, *, memory: Memory, run: str, lease_ttl: float = 5.0
    ) -> None:
        self._keys = keys
        self._terms = terms
        self._now = now
        self._memory = memory
        self.round = RoundState.gathering(0, now)
        self._effects: list[Effect] = []
        self._adoption = Adoption(memory)
        self._membership = Membership(keys, memory.dead, lease_ttl)
        self._mismatches = Mismatches(keys.job, terms.fingerprint)
        self._faults = Faults(terms.max_restarts, terms.same_failure_limit, terms.own_failure_limit)
        self._publication = Publication(run, terms.policy.recovery_timeout)
        self._said = ""
        self._standstill = Standstill(terms.on_hang, terms.on_straggler, now, roles=bool(terms.policy.roles))
        self._targets = Targets()
        self._planned: Target | None = None
        self._training = TrainingTime()
        self._data_left = ""  # of the round, by workers that have succeeded
        self._next: tuple[Reason, float | None] = (NoChange(), None)  # what it waits for, and until when

    def on(self, event: Event, now: float) -> tuple[Effect, ...]:
        """What follows from `event`, in the order in which it is to be done."""
        self._now = now
        self._effects = []
        match event:
            case events.WatchedTo(revision):
                if self.phase in ("leading", "ended"):
                    self._effects += self._membership.forget_removed(revision, self.round.incarnations)
            case events.Found():
                self._load(event)
            case events.SuccessesRead(successes):
                self._adoption.read_again(successes)
            case events.Abandoned(done):
                if done:  # else one of them has come back: looks again
                    self._begin_afresh(self._adoption.header.number, self._adoption.abandon(now))
            case events.Published():
                self._adopt_published(event)
            case events.Diagnosed():
                self._diagnose(event)
            case events.DataLeft(what):
                self._data_left = what
            case events.Planned(nodes, why):
                self._planned = Target("", nodes, PlannedSize(why))
            case events.Look():
                self._look()
            case _:
                self._apply(self._membership.on(event, self.round.number, now))
        return tuple(self._effects)

    def all_here(self) -> bool:
        """Nobody was lost of the round that is being published."""
        return self._publication.all_here(self._membership.present)

    @property
    def phase(self) -> Phase:
        """See above."""
        return self._adoption.phase or ("ended" if self.header and self.header.final else "leading")

    @property
    def header(self) -> Header | None:
        """The current one, once it is adopted or published."""
        return self._publication.header

    @property
    def registered(self) -> frozenset[str]:
        """The nodes whose keys are in the store, as far as it was told."""
        return frozenset(self._membership.present.values())

    @property
    def ended_ranks(self) -> frozenset[int]:
        """The ranks of the current round whose workers, started for it or before, have ended with exit code 0."""
        number = self.round.number
        since = {each.incarnation: each.since or number for each in self.round.assigned}
        members = [seen.member for seen in self._membership.seen if seen.member.incarnation in since]
        exits = [(since[each.incarnation], exit_) for each in members for exit_ in each.report.exits if exit_.ok]
        told = {exit_.rank for first, exit_ in exits if first <= exit_.round <= number}
        for each in members:
            if each.report.ended and since[each.incarnation] <= each.report.round <= number:
                ranks = self.round.ranks[each.incarnation]
                told.update(ranks[local] for local in read_ranks(each.report.ended) if local < len(ranks))
        return frozenset(told)

    def training(self, now: float) -> Training:
        """How the job trains now."""
        members = self._membership.by_incarnation
        found = [members.get(each) for each in self.round.current.nodes]
        repeated = self._training.until(now).split.wasted_progress_from_disruption / MICROSECONDS
        in_place = bool(found) and all(each is not None and each.report.keeps for each in found)
        return Training(self._training.trains, in_place, repeated)

    def status(self, now: float, datasets: Sequence[Progress] = ()) -> Status:
        """The whole job now; its ledgers say how far `datasets` are."""
        header = self.header
        members = self._membership.by_incarnation
        found = ((each, members.get(each.incarnation)) for each in self.round.assigned)
        others = [seen for seen in self._membership.seen if seen.member.incarnation not in self.round.incarnations]
        waits_for, until = self._next if self.phase == "leading" else (NoChange(), None)
        return Status(
            job=self._keys.job,
            run=self._publication.run,
            state=header.state if header else "gathering",
            round=self.round.number,
            age=now - (self._publication.published_at if header else self.round.current.opened_at),
            cause=header.cause if header else None,
            reason=header.reason if header else None,
            next=waits_for,
            deadline=None if until is None else max(0.0, until - now),
            in_place=header is not None and header.in_place,
            targets=self._targets.wanted,
            world_size=header.world_size if header and header.state == "open" else 0,
            nodes=tuple(Node.of(member, each) if member else Node.lost(each) for each, member in found),
            standbys=tuple(Node.of(seen.member) for seen in sorted(others, key=lambda seen: seen.order)),
            returning=self._membership.returning,
            tally=status.counted(header) if header else Tally(),
            max_restarts=self._faults.max_restarts,
            incidents=self._faults.list_incidents(now),
            datasets=tuple(datasets),
            goodput=self._training.until(now),
            diagnosis=self._standstill.list_findings(now),
        )

    # -- what an earlier master has left ----------------------------------------------------------------------------

    def _load(self, found: events.Found) -> None:
        self._adoption.load(found)
        if found.header is None:
            self._begin_afresh(0, self._memory.began)
        elif not found.header.final:
            self._effects += self._membership.await_missing(found, self._memory.began, self._now)

    def _adopt(self) -> None:
        """Goes on with the header that was found, unless nobody is there who is in its round or has come back."""
        found, header, members = self._adoption.found, self._adoption.header, self._membership.by_incarnation
        self.round = RoundState.gathering(header.number, self._now)
        if abandon := self._adoption.judge(members, self._membership.keys_held):
            self._do(abandon)
            return
        self._publication.adopt(header, found.revision, found.published)
        self._faults.adopt(header, found.published)
        self._mismatches.adopt(header.fingerprint, members.values())
        self.round = RoundState.of(header, found.assigned, found.published, self._terms.policy)
        last = {each: members[each].report if each in members else None for each in self.round.current.nodes}
        self._training = TrainingTime.continued(found, last, self._now)
        if found.spent:
            self._standstill.begin_round({each: report for each, report in last.items() if report})
        self._say(f"the job's master now runs here and continues with round {header.number}")
        self._apply(self._membership.adopt(header, found, self._now))
        for seen in self._membership.seen:
            self._gather(seen.member)
        self._membership.forget_dead(self.round.incarnations)

    def _begin_afresh(self, number: int, since: float) -> None:
        """The next round, after this number of an earlier run, is the first; its nodes have waited since then."""
        self.round = RoundState.gathering(number, since)
        if self._terms.policy.max_nodes > 1:
            self._say("the job's master now runs here")
        self._membership.forget_dead(())

    # -- who comes and goes -----------------------------------------------------------------------------------------

    def _apply(self, changes: Iterable[Change]) -> None:
        for each in changes:
            match each:
                case Lost(incarnation=incarnation):
                    self._publication.lose(each)
                    if incarnation in self.round.incarnations and not each.succeeded:
                        self._note(each.evidence(self.round.number))
                case Heard(member, before):
                    self._hear_report(member, before)
                case _:
                    self._do(each)

    def _hear_report(self, member: Member, before: Report | None) -> None:
        report, known = member.report, before.saved if before and before.round == member.report.round else 0
        inside = member.incarnation in self.round.incarnations and report.round == self.round.number
        if before and inside and report.saved > known:
            self.round = self.round.saved(self._now)
            self._training.saved(self._now)
        self._publication.keep_node(member.incarnation)
        self._mismatches.compare(member)
        self._gather(member)
        if inside and self.round.running:
            self._watch_progress(member)

    def _await_returns(self) -> float | None:
        """Until when to wait for nodes that may register again; None: for nobody."""
        changes, until = self._membership.await_returns(self.round.number, self._now)
        self._apply(changes)
        if until is not None:
            who = f"waiting for {', '.join(self._membership.returning)} to register again"
            self._say_once(f"leases may have expired while the store was unavailable: {who}")
        return until

    # -- a job that stands still ------------------------------------------------------------------------------------

    def _watch_progress(self, member: Member) -> None:
        """Has the round examined where a node tells, or tells again, that a worker makes no progress."""
        news = self._standstill.hear_report(member.incarnation, member.report)
        if news == "worse" and self.phase == "leading":
            self._do(effects.Examine(self.round.number, self.suspected))
        elif news == "moves":
            self._training.goes_on(self._now)
            self._effects += self._standstill.forget_hangs()

    @property
    def suspected(self) -> tuple[Suspected, ...]:
        """The nodes of the round, as they are asked for evidence: without those that have left after their success."""
        has_left = self._membership.has_left
        return tuple(self._suspected(each) for each in self.round.assigned if not has_left(each.incarnation))

    def _suspected(self, each: Assignment) -> Suspected:
        host = self._membership.host_of(each.node)
        return Suspected(each.node, each.incarnation, host, each.agent_address, each.role, each.nproc)

    def _diagnose(self, event: events.Diagnosed) -> None:
        if event.round != self.round.number or not self.round.running or self.phase != "leading":
            return
        suspected = {each.incarnation: self._suspected(each) for each in self.round.assigned}
        standbys = self._membership.standbys(self.round.incarnations, self._mismatches.nodes)
        nodes = RoundNodes(self.round, suspected, standbys)
        if event.compares:
            self._effects += self._standstill.judge_stragglers(event.findings, nodes, self._now)
            return
        todo, seconds = self._standstill.judge_hangs(event.findings, nodes, self._now)
        self._effects += todo
        if seconds is None:
            self._training.goes_on(self._now)
        else:
            self._training.stands_still(self._now, event.age + seconds)

    # -- incidents --------------------------------------------------------------------------------------------------

    def _gather(self, member: Member) -> None:
        report = member.report
        if report.state in ("running", "succeeded") and report.round == self.round.number:
            self._training.runs(member.incarnation, self._now)
        run = self.header.run if self.header else ""
        self._charge(self._faults.hear_report(member, self.round, self._now, run))

    def _note(self, evidence: Evidence) -> None:
        self._charge(self._faults.note(evidence, self.round, self._now))

    def _charge(self, todo: Sequence[Effect]) -> None:
        for each in todo:
            if isinstance(each, effects.FirstEvidence):
                self._training.ended(self._now, category("left" if self._faults.only_left else "lost"))
        self._effects += todo

    # -- decisions --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        match self.phase:
            case "loading":
                raise AssertionError("what an earlier master has left has not been told")
            case "returning":
                if wanted := self._adoption.await_returns(self._await_returns()):
                    self._do(wanted)
                else:
                    self._adopt()
            case "adopting":
                self._adopt()
            case "leading":
                until = self._await_returns()  # before the walk: those that are given up are no members any more
                found = survey(self._membership.seen, self.round.current, self._terms.policy)
                refusal = self._mismatches.refuse_next(self._membership.seen)
                self._effects += refusal
                if not any(isinstance(each, effects.Refuse) for each in refusal):
                    self._decide(found, until)
            case "ended":
                self._aim(finishing=True)
                header, publication = self.header, self._publication
                assert header is not None, "a job ends by a header"
                ending = Ending(header, publication.revision, publication.published_at + self._terms.farewell_seconds)
                until = self._await_returns() if self._now < ending.deadline else None
                self._do(ending.see_off(self._membership.seen, until, self._now))

    def _aim(self, *, finishing: bool) -> None:
        """Has the targets written where they have changed."""
        ended = self.header.state if self.header and self.header.final else None
        if self._terms.plan and self._planned is None and not ended:
            return  # what an earlier master has written holds until the plan of this one begins with what there is
        wanted = targets(
            self.round.current, self._terms.policy, finishing=finishing, ended=ended, planned=self._planned
        )
        found = Targets(wanted)
        if found != self._targets:
            self._do(found)
        self._targets = found

    def _decide(self, found: Survey, until: float | None) -> None:
        """What follows from what the members say; `until`: nodes that may register again are awaited so long."""
        if until is not None:
            if self._membership.ask_confirmation():
                self._do(effects.Confirm())
            self._do(effects.Wait(until))
            return
        if self._standstill.ends and self.round.running:
            self._publish(Finish("failed"), StandsStill(cut(str(self._standstill.ends))))
            return
        fault = self._faults.judge_round(self.round) if self.round.running else None
        current = dataclasses.replace(self.round.current, fault=fault)
        decision, reason = decide(found, current, self._terms.policy, self._now)
        if decision == Finish("succeeded") and self._data_left:
            decision, reason = Finish("failed"), RecordsLeft(self._data_left)
        match decision:
            case Keep(until):
                self._next = reason, until
                self._say_once("" if isinstance(reason, AwaitingReports) else str(reason))  # it is over in a moment
                if self.round.running and (spent := self._training.unkept(self.round.number, self._now)):
                    self._do(spent)  # first, for the wait may be long
                self._aim(finishing=found.finishing)
                self._do(effects.Wait(until))
            case _:
                self._publish(decision, reason)

    def _publish(self, decision: Open | Suspend | Finish, reason: Reason) -> None:
        charge = self._faults.charge(decision, self.round, self._now)
        if charge.goes_back and isinstance(decision, Open):
            decision = Open(decision.nodes, decision.cause, decision.node_workers)  # no worker goes on
        wanted = self._publication.prepare(decision, reason, charge, self.round, self._mismatches.fingerprint)
        self._do(dataclasses.replace(wanted, header=self._training.headed(wanted.header, self._now)))

    def _adopt_published(self, event: events.Published) -> None:
        header = event.header
        self._publication.adopt(header, event.revision, event.published)
        self._next = NoChange(), None
        self._training.ended(self._now, since(header))
        self._effects += self._faults.publish(header, self._now)
        if header.final:
            return
        if header.state == "waiting":
            self.round = self.round.suspended(header.number, self._now)
            return
        self._data_left = ""
        grown_at = self.round.current.grown_at
        self.round = RoundState.of(header, self._publication.assigned, self._now, self._terms.policy, grown_at)
        self._standstill.begin_round()
        self._training.opened(self.round.incarnations, self._now, header.cause, in_place=header.in_place)
        self._membership.begin_round()
        # What they said of this round while its header's answer was awaited was not yet about the current one.
        for seen in self._membership.seen:
            self._gather(seen.member)
        for lost in self._publication.open_round():
            self._note(lost.evidence(header.number))

    # -- effects ----------------------------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _say(self, line: str) -> None:
        self._do(effects.Say(line))

    def _say_once(self, line: str) -> None:
        if line and self._said != line:
            self._say(line)
        self._said = line
