"""Why workers ended, whose fault it was as far as is known, and what of it the job goes on without.

A part of the controller (pure). `incident_log.py` keeps the evidence, `incident.py` judges it.
"""

from collections import deque

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header, Incident, Tally
from ...rendezvous.member import DEPARTING, Member
from ...rendezvous.node_reasons import Unexplained
from ...rendezvous.round import Fault, Finish, Open, Suspend
from .. import status
from ..status import NEWEST
from . import effects, incident
from .effects import Effect
from .incident import Evidence, FailedWorker
from .incident_log import IncidentLog
from .round_state import RoundState


@dataclass(frozen=True, slots=True)
class Charge:
    """What a decision is charged with.

    Attributes:
        tally: what has happened; of the end of a job, all of it, else without `incident`.
        incident: why it is decided, where one is the reason.
        begun: since when there was a reason for it (the master's clock).
        goes_back: the job goes back to a checkpoint of what its servers held.
    """

    tally: Tally
    incident: Incident | None
    max_restarts: int
    begun: float
    goes_back: bool = False


class Faults:
    """Of one leadership.

    Args:
        max_restarts: of the job.
        same_failure_limit, own_failure_limit: see `Terms`.

    Attributes:
        max_restarts: that of the header, where there is one.
        log: the evidence, and what has been charged.
        only_left: the first evidence of the last round that ended was of departures alone.
    """

    def __init__(self, max_restarts: int, same_failure_limit: int, own_failure_limit: int) -> None:
        self.max_restarts = max_restarts
        self.log = IncidentLog()
        self.only_left = False
        self._limits = same_failure_limit, own_failure_limit
        self._given_up: set[tuple[int, str]] = set()  # round and node, whose failures open no other one
        self._first_end: FailedWorker | None = None  # the first worker of the round that ended with 0 by itself
        self._began: tuple[int, float] = (-1, 0.0)  # the round that evidence came of last, and when its first came
        self._newest: deque[tuple[float, Incident]] = deque(maxlen=NEWEST)  # incidents, with their times

    def adopt(self, header: Header, published: float) -> None:
        """Goes on from the header of an earlier master, which was published then."""
        self.log, self.max_restarts = IncidentLog(header.tally, header.incident), header.max_restarts
        if header.incident:
            self._newest.append((published, header.incident))

    def publish(self, header: Header, now: float) -> list[Effect]:
        """This header is the current one."""
        todo = list[Effect]()
        if header.incident:
            from ..diagnosis.ends import of_incident  # here, because a job without a fault needs none

            self._newest.append((now, header.incident))
            if cause := of_incident(header.incident):
                words = f"diagnosis: {cause}; {cause.domain}; a restart {cause.outlook}"
                todo += [effects.Note(cause), effects.Say(words)]
        if header.final:
            return todo
        self.log.turn(header.number, header.tally, header.incident)
        if header.state == "open":
            todo += self._correct(header.incident, header.number)
            self._first_end = None
            self._given_up = {each for each in self._given_up if each[0] == header.number - 1}
        return todo

    def hear_report(self, member: Member, round: RoundState, now: float, run: str) -> list[Effect]:
        """What follows from a node's report; `run`: of the header, empty where there is none."""
        report, number, todo = member.report, round.number, list[Effect]()
        inside, optional = member.incarnation in round.incarnations, member.incarnation in round.optional
        if inside and report.state in DEPARTING:
            why = report.problem or Unexplained()
            todo += self.note(Evidence(number, left=((member.node, why),)), round, now)
        elif inside and report.state == "failed" and report.round == number:
            unsaid = not any(
                not exit_.ok and not exit_.stopped and exit_.round == report.round for exit_ in report.exits
            )
            why = report.problem or Unexplained()
            if (report.problem or unsaid) and not self._gives_up(member, number, round, why, todo):
                problems = ((member.node, why),)
                todo += self.note(Evidence(number, problems=problems, optional=optional), round, now)
        if report.run and run and report.run != run:
            return todo
        # A report names failures first, and who has ended with 0 may be the cause of them.
        for exit_ in report.exits:
            if self._first_end is None and exit_.ok and not exit_.stopped and exit_.round == number:
                self._first_end = FailedWorker(member.node, member.host, exit_)
        for exit_ in report.exits:
            late = exit_.round == number - 1 and member.incarnation not in round.continuing
            if not exit_.ok and not exit_.stopped and (late or exit_.round == number):
                failed = FailedWorker(member.node, member.host, exit_, optional)
                if self._gives_up(member, exit_.round, round, incident.describe(failed), todo):
                    continue
                before = (first,) if (first := self._first_end) and first.exit.round == exit_.round else ()
                known = exit_.round == number and not self._given_up
                world = sum(each.nproc for each in round.assigned) if known else 0
                todo += self.note(Evidence(exit_.round, exits=(failed,), finished=before, world=world), round, now)
        return todo

    def note(self, evidence: Evidence, round: RoundState, now: float) -> list[Effect]:
        """What follows from evidence of that or the round before."""
        todo, current = list[Effect](), round.current
        if evidence.round == current.number != self._began[0]:
            self._began = evidence.round, now
            self.only_left = bool(evidence.left) and not (evidence.exits or evidence.lost or evidence.problems)
            todo.append(effects.FirstEvidence(evidence.round))
        known = self.log.pending
        self.log.note(evidence, current, now)
        return todo + self._correct(known, current.number)

    def judge_round(self, round: RoundState) -> Fault | None:
        """How that round fails, as far as is known."""
        same, own = self._limits
        return self.log.fault(round.number, self.max_restarts, same, round.exits, own)

    def charge(self, decision: Open | Suspend | Finish, round: RoundState, now: float) -> Charge:
        """What a decision on that round is charged with."""
        because, tally = None, self.log.settled()
        match decision:
            case Finish(outcome):
                because = self.log.verdict(round.number) if outcome in ("failed", "repeated") else None
                tally = incident.charge(tally, because)
            case Open(nodes, cause="joined"):
                new = [member.node for member in nodes if member.incarnation not in round.incarnations]
                because = incident.joins(round.number, new)
            case _:
                if round.running:  # a suspension has published its cause already
                    because = self.log.verdict(round.number)
        began, at = self._began
        goes_back = round.running and self.log.goes_back(round.number)
        return Charge(tally, because, self.max_restarts, at if began == round.number else now, goes_back)

    def list_incidents(self, now: float) -> tuple[status.Incident, ...]:
        """The newest, for the job's status."""
        return tuple(status.Incident.of(each, now - at) for at, each in self._newest)

    def _gives_up(self, member: Member, number: int, round: RoundState, why: object, todo: list[Effect]) -> bool:
        """Round `number` goes on without the workers of this node, until the next is opened for another reason."""
        key = number, member.incarnation
        if key in self._given_up:
            return True
        spent = self.log.settled().optional >= self.max_restarts
        if number != round.number or member.incarnation not in round.optional or not spent:
            return False
        self._given_up.add(key)
        role = next(each.role for each in round.assigned if each.incarnation == member.incarnation)
        budget = f"optional roles have used up --max-restarts={self.max_restarts}"
        todo.append(effects.Say(f"continues without the {role} of {member.node}: {why}; {budget}"))
        return True

    def _correct(self, known: Incident | None, number: int) -> list[Effect]:
        """Says why round `number` was opened, where its header, which named `known`, was written too early to tell."""
        found = self.log.pending
        if known and found and found.cause == "failure" and found.reason != known.reason:
            return [effects.Say(f"round {number} was opened because {found.reason}")]
        return []
